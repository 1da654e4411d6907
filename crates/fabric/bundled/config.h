/* What libfabric's configure script would find out, for Linux with gcc or clang, and only the providers that are
 * compiled. Patching of functions for its registration cache is left out: that cache is not used. */
#define PACKAGE "libfabric"
#define PACKAGE_VERSION "1.22.0"
#define VERSION "1.22.0"
#define BUILD_ID ""
#define _GNU_SOURCE 1
#define HAVE_ATOMICS 1
#define HAVE_ATOMICS_LEAST_TYPES 1
#define HAVE_BUILTIN_ATOMICS 1
#define HAVE_BUILTIN_MM_ATOMICS 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_DECL_ETHTOOL_CMD_SPEED 1
#define HAVE_DECL_SPEED_UNKNOWN 1
#define HAVE_EPOLL 1
#define HAVE_ETHTOOL 1
#define HAVE_GETIFADDRS 1
#define HAVE_RXM 1
#define HAVE_TCP 1
#define PT_LOCK_SPIN 1

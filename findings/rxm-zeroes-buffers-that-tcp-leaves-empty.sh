#!/usr/bin/env bash
# Guess: an endpoint of libfabric's tcp;ofi_rxm that is asked for queues of 16 entries takes little memory of its own.
#   Buffers of 256 bytes (FI_OFI_RXM_BUFFER_SIZE=256) limit what a message may have that no receive waits for.
# Is: enabling the endpoint takes and writes 4,096 buffers of 16 KiB, 65 MiB and more, whatever the hints say. With
#   buffers of 256 bytes it takes less than 8 MiB, and a message of 16,000 bytes that no receive waited for still
#   arrives whole, as long as FI_OFI_RXM_EAGER_LIMIT says 16384.
# Seen with libfabric 1.17.0 of Debian 12 (1.17.0-3); Linux 6.18.
# So: the library has libfabric read both variables while an endpoint opens (crates/fabric/src/environment.rs), where
#   the user has set neither. A process over tcp has 8 MB of its own, not 88; docs/FOOTPRINT.md.
set -euo pipefail
version=1.17.0-3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq -o APT::Sandbox::User=root download "libfabric1=$version" "libfabric-dev=$version" \
  librdmacm1 libibverbs1 libnl-3-200 libnl-route-3-200 libpsm-infinipath1 libpsm2-2 libatomic1
for package in ./*.deb; do dpkg-deb -x "$package" root; done
libraries=$(dirname "$(find root -name 'libfabric.so.1' | head -n 1)")

cat >two.c <<'C'
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DO(call) do { long rc = (call); if (rc) { fprintf(stderr, "%s: %ld\n", #call, rc); exit(2); } } while (0)
enum { BYTES = 16000, SECONDS = 20 };

static long own_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (fgets(line, sizeof line, file)) sscanf(line, "Private_Dirty: %ld", &kib);
    fclose(file);
    return kib;
}

struct end { struct fid_ep *ep; struct fid_cq *cq; struct fid_av *av; };

static struct end open_end(struct fid_fabric *fabric, struct fi_info *info) {
    struct end end;
    struct fid_domain *domain;
    struct fi_av_attr av = { .type = FI_AV_TABLE };
    struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG, .size = 64 };
    DO(fi_domain(fabric, info, &domain, NULL));
    DO(fi_av_open(domain, &av, &end.av, NULL));
    DO(fi_cq_open(domain, &cq, &end.cq, NULL));
    DO(fi_endpoint(domain, info, &end.ep, NULL));
    DO(fi_ep_bind(end.ep, &end.av->fid, 0));
    DO(fi_ep_bind(end.ep, &end.cq->fid, FI_TRANSMIT | FI_RECV));
    DO(fi_enable(end.ep));
    return end;
}

/* Lets both make progress until one of them has news, and gives the bytes of that. */
static long news(struct end *one, struct end *other) {
    for (time_t begun = time(NULL); time(NULL) < begun + SECONDS;) {
        struct fi_cq_msg_entry entry;
        long got = fi_cq_read(one->cq, &entry, 1);
        if (got == 1) return entry.len;
        if (got != -FI_EAGAIN) return got;
        fi_cq_read(other->cq, NULL, 0);
    }
    return -1;
}

int main(void) {
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
    hints->tx_attr->size = hints->rx_attr->size = 16;
    DO(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
    struct fid_fabric *fabric;
    DO(fi_fabric(info->fabric_attr, &fabric, NULL));
    long before = own_kib();
    struct end from = open_end(fabric, info);
    long taken = own_kib() - before;
    struct end to = open_end(fabric, info);

    char name[256];
    size_t len = sizeof name;
    fi_addr_t address;
    DO(fi_getname(&to.ep->fid, name, &len));
    if (fi_av_insert(from.av, name, 1, &address, 0, NULL) != 1) return 2;
    char *bytes = malloc(BYTES), *got = calloc(1, BYTES);
    memset(bytes, 7, BYTES);
    long posted = -FI_EAGAIN;
    for (time_t begun = time(NULL); posted == -FI_EAGAIN && time(NULL) < begun + SECONDS;) {
        posted = fi_send(from.ep, bytes, BYTES, NULL, address, NULL);
        fi_cq_read(from.cq, NULL, 0);
        fi_cq_read(to.cq, NULL, 0);
    }
    DO(posted);
    /* The message comes in before anybody receives. */
    if (news(&from, &to) < 0) return 2;
    for (int look = 0; look < 1000; look++) fi_cq_read(to.cq, NULL, 0);
    DO(fi_recv(to.ep, got, BYTES, NULL, FI_ADDR_UNSPEC, NULL));
    long came = news(&to, &from);
    printf("%s, message %s\n", taken > 65 * 1024 ? "over 65 MiB" : taken < 8 * 1024 ? "under 8 MiB" : "between",
           came == BYTES && !memcmp(bytes, got, BYTES) ? "whole" : "not whole");
    fprintf(stderr, "%ld KiB\n", taken);
    return 0;
}
C
cc -O1 -o two two.c -I root/usr/include -L "$libraries" -lfabric -Wl,-rpath-link,"$libraries"
run() { env -u FI_PROVIDER LD_LIBRARY_PATH="$libraries" timeout 120 "$@" ./two; }
said="$(run env)"$'\n'"$(run env FI_OFI_RXM_BUFFER_SIZE=256 FI_OFI_RXM_EAGER_LIMIT=16384)"
echo "$said"
[ "$said" = $'over 65 MiB, message whole\nunder 8 MiB, message whole' ] || { echo "changed"; exit 1; }
echo "as found: rxm writes 65 MiB of buffers over tcp that it does not need there"

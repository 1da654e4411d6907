//! Standpipe's operating-system layer: shared segments, rings, sleeping, cross-memory attach.

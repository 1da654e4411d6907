/* What all layers of libstandpipe_layers.so share. */
#ifndef STANDPIPE_LAYERS_H
#define STANDPIPE_LAYERS_H

/* The version of the interfaces in this folder; a later one has all that an earlier one has. */
#define STANDPIPE_LAYERS_VERSION 1

#endif

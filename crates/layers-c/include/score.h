/*
 * The environment in which SCore starts a program: who and where it is, and its PM contexts.
 *
 * All variables are 0 before score_initialize. A node is a process; a host has one or more of them.
 * [recalled: that score_num_proc counts this host's]
 */
#ifndef STANDPIPE_SCORE_H
#define STANDPIPE_SCORE_H

#include "pm.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sets the variables. All processes of the job call it, first of all and once, and wait for each other. It
 * writes what is wrong on standard error: a second call does nothing; where PM cannot be had, the process
 * ends with status 1.
 */
void score_initialize(int argc, char **argv);

/* Elements of score_pmnet: 1. */
extern int score_num_pmnet;
/* Hosts, and this process's, from 0. */
extern int score_num_host, score_self_host;
/* Processes on this host, and this one's number there, from 0. */
extern int score_num_proc, score_self_proc;
/* Processes in all, and this one's number, from 0: what PM calls a node. */
extern int score_num_node, score_self_node;
/* Contexts of composite devices, each of which reaches all nodes. */
extern pmContext **score_pmnet;

#ifdef __cplusplus
}
#endif

#endif

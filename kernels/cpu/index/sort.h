/* The length from which ARGSORT needs a workspace, for its kernel (sort.c) and the workspace rule (workspace.c). */
#ifndef WN_CPU_SORT_H
#define WN_CPU_SORT_H

enum { WN_SORT_SHORT = 64 }; /* elements of the longest line that is sorted by insertion */
#endif

/* What the files of the API share. */
#ifndef WN_API_H
#define WN_API_H
#include "base/alloc.h"
#include "graph/graph.h"
#include "io/file.h"
#include "io/lock.h"
#include "plan/cache.h"
#include "plan/rewrite.h"
#include "run/check.h"
#include "run/program.h"
#include "run/run.h"
#include "wane.h"

int32_t wn__enter(void); /* drains the queue of finalizers; refuses other threads, and after a fork */
/* A handle for a node just made (takes the reference over): id or -(status). */
int32_t wn__api_value(int32_t code, struct wn_node *n);
#endif

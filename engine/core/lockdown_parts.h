/* The mechanisms behind lockdown.c; nobody else includes this. Each returns 0 or an errno. */
#ifndef ENGINE_CORE_LOCKDOWN_PARTS_H
#define ENGINE_CORE_LOCKDOWN_PARTS_H

#include <stdbool.h>

#include "engine/core/lockdown.h"

/* Sanitizers: their allocator, reports and leak search need more. clang says so by a feature, gcc
 * by a macro. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKDOWN_WIDE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKDOWN_WIDE 1
#endif
#endif
#ifndef LOCKDOWN_WIDE
#define LOCKDOWN_WIDE 0
#endif

/* ---- lockdown_seccomp.c ---- */

enum lockdown_list { LOCKDOWN_FIRST, LOCKDOWN_FINAL };

/* Over all threads of the process. */
int lockdown_seccomp(enum lockdown_list list);

/* ---- lockdown_landlock.c ---- */

enum lockdown_files {
    LOCKDOWN_FILES_OF_PARSER, /* reads the model, /proc/meminfo; may make the socket */
    LOCKDOWN_FILES_OF_DEVICE, /* /proc/meminfo, the socket */
    LOCKDOWN_FILES_NONE,
};

/* 0: the kernel has none, or it isn't enabled; then *error says why. */
int lockdown_landlock_abi(int *error);
/* Binds the calling thread and the threads it starts later. */
int lockdown_landlock(const struct lockdown_config *cfg, int abi, enum lockdown_files files);

/* ---- lockdown_privileges.c ---- */

/* A network namespace with nothing in it, in a user namespace of its own where that is needed.
 * Needs a process of one thread. */
int lockdown_empty_network(void);
/* All capabilities go, but with keep_dac those that read and write files of other users. */
int lockdown_drop_capabilities(bool keep_dac);
/* The paths can be used with those alone, and not without. */
bool lockdown_paths_need_dac(const struct lockdown_config *cfg);

#endif

/* A gateway's side of one model with two loops, engines played by the test at the model's socket,
 * and two model files between which its settings may change. Failures abort the test. */
#ifndef TESTS_LIB_SWAP_RIG_H
#define TESTS_LIB_SWAP_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "tests/lib/played_engine.h"

#define SWAP_LOOPS   2
#define SWAP_ENGINES 3

struct swap_rig {
    char dir[64], files[2][96], socket_path[96];
    char hex[2][65]; /* the files' revisions */
    struct loop *loops[SWAP_LOOPS];
    struct engine *engine;
    struct engine_link *links[SWAP_LOOPS]; /* NULL: closed */
    const struct engine_model *model;
    struct played_engine engines[SWAP_ENGINES]; /* turned while the rig waits */
    pthread_mutex_t lock;
    pthread_cond_t released;
    const char *file; /* under lock, as the next ones: what the settings name now */
    uint32_t n_reloads;
    bool is_held;
};

/* Its settings name files[0]; no engine yet. */
void swap_rig_open(struct swap_rig *r);
/* Beside a second model, and without a revision: the settings name no file. Who reads them again is
 * held. */
void swap_rig_open_without(struct swap_rig *r);
/* What is still open; the caller has put its revisions. */
void swap_rig_close(struct swap_rig *r);
void swap_rig_close_links(struct swap_rig *r);

/* An engine at the socket that serves files[which]; its place in r->engines is its pid too. */
void swap_rig_play(struct swap_rig *r, size_t engine, size_t which);
/* What the settings name from now on. */
void swap_rig_set_file(struct swap_rig *r, const char *path);
/* Who reads the settings waits until this is taken back. */
void swap_rig_hold(struct swap_rig *r, bool is_held);
/* The engine hands over to another one that serves files[which], as the settings do. */
void swap_rig_hand_over(struct swap_rig *r, size_t from, size_t to, size_t which);

/* Turns the loops and the engines until check(r); aborts after 20 seconds. */
void swap_rig_await(struct swap_rig *r, bool (*check)(struct swap_rig *r));
void swap_rig_turn(struct swap_rig *r);

bool swap_rig_serves(struct swap_rig *r); /* on every loop */
bool swap_rig_has_revision(struct swap_rig *r);
bool swap_rig_has_file_0(struct swap_rig *r); /* as the current revision, everywhere */
bool swap_rig_has_file_1(struct swap_rig *r);
size_t swap_rig_n_revisions(struct swap_rig *r); /* that live */
bool swap_rig_is_settled(struct swap_rig *r);    /* one lives */
uint32_t swap_rig_n_reloads(struct swap_rig *r);
bool swap_rig_wants_change(struct swap_rig *r); /* another one, now or later */

struct swap_job {
    struct engine_job *job;
    struct engine_end end;
    int n_ends;
};
enum status swap_rig_submit(struct swap_rig *r, size_t loop, const struct engine_revision *revision,
                            struct swap_job *j);

#endif

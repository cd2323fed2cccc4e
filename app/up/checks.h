/* What can be seen to fail before anything starts: each a sentence that says what to do. */
#ifndef APP_UP_CHECKS_H
#define APP_UP_CHECKS_H

#include "app/up/options.h"
#include "base/status.h"

/* Room for a new cluster, its log and the journal. ST_NO_SPACE. */
MUST_CHECK enum status check_space(const char *folder, struct reason *why);
/* Readable, whole, and something that we compute: model, tokenizer and chat template. */
MUST_CHECK enum status check_model(const char *path, struct reason *why);
/* One launcher per folder: holds DIR/lock until the process ends. ST_CONFLICT names the other. */
MUST_CHECK enum status check_alone(const char *folder, struct reason *why);
/* The ports are free on 127.0.0.1. ST_CONFLICT names the one that isn't, and its option. */
MUST_CHECK enum status check_ports(const struct up_options *o, struct reason *why);

#endif

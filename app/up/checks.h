/* What can be seen to fail before anything starts: each a sentence that says what to do. */
#ifndef APP_UP_CHECKS_H
#define APP_UP_CHECKS_H

#include "base/status.h"

/* Room for a new cluster, its log and the journal. ST_NO_SPACE. */
MUST_CHECK enum status check_space(const char *folder, struct reason *why);
/* Readable, whole, and something that we compute: model, tokenizer and chat template. */
MUST_CHECK enum status check_model(const char *path, struct reason *why);
/* One launcher per folder: holds DIR/lock until the process ends. ST_CONFLICT names the other. */
MUST_CHECK enum status check_alone(const char *folder, struct reason *why);

#endif

/* DIR/README: what lies in the folder. */
#ifndef APP_UP_README_H
#define APP_UP_README_H

#include "app/up/layout.h"
#include "base/status.h"

MUST_CHECK enum status readme_write(const struct layout *l, struct reason *why);

#endif

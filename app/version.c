#include "app/version.h"

/* The Makefile gives this one object the commit's short id; other builds of it say so. */
#ifndef SLUICE_BUILD
#define SLUICE_BUILD "unknown"
#endif
#define SLUICE_VERSION "0.1.0"

static const char text[] = SLUICE_VERSION " (" SLUICE_BUILD ")";

_Static_assert(sizeof text <= 64, "the greeting between gateway and engine has 64 bytes for it");

const char *version_text(void)
{
    return text;
}

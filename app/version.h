/* What this binary is: "0.1.0 (<build id>)". Any thread. */
#ifndef APP_VERSION_H
#define APP_VERSION_H

/* Static storage; below 64 bytes, the room that the engine's greeting has for it. */
const char *version_text(void);

#endif

/* The supervisor's requests from any bytes: refused, or one of the forms with a printable id. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "app/supervise/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct control_request r;
    struct reason why = {0};
    size_t id_len;

    if (control_parse((const char *)data, len, &r, &why) != ST_OK)
        return 0;
    id_len = strnlen(r.model, sizeof r.model);
    if (len >= CONTROL_LINE_BYTES || r.op > CONTROL_SWAP || id_len == sizeof r.model ||
        (id_len == 0) != (r.op == CONTROL_LIST))
        abort();
    for (size_t i = 0; i < id_len; i++)
        if ((unsigned char)r.model[i] < 0x20 || r.model[i] == 0x7F)
            abort();
    return 0;
}

#include "app/up/commands.h"

#include <string.h>

#include "app/supervise/files.h"

void commands_put_quoted(struct buf *out, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-+:@%";

    if (*s != '\0' && s[strspn(s, plain)] == '\0') {
        buf_puts(out, s);
        return;
    }
    buf_putc(out, '\'');
    for (; *s != '\0'; s++)
        if (*s == '\'')
            buf_puts(out, "'\\''");
        else
            buf_putc(out, *s);
    buf_putc(out, '\'');
}

/* The key stays in its file: it stands in no history of a shell. */
static void put_key(struct buf *out, const char *dir)
{
    struct buf path;

    buf_init(&path);
    buf_printf(&path, "%s/demo.key", dir);
    buf_puts(out, "$(cat ");
    commands_put_quoted(out, buf_cstr(&path));
    buf_putc(out, ')');
    buf_dispose(&path);
}

static void put_authorization(struct buf *out, const char *dir)
{
    buf_puts(out, "-H \"Authorization: Bearer ");
    put_key(out, dir);
    buf_putc(out, '"');
}

static void put_curl(struct buf *out, const char *dir, const char *model_id, int port)
{
    buf_printf(out, "curl -N http://127.0.0.1:%d/v1/chat/completions \\\n  ", port);
    put_authorization(out, dir);
    buf_printf(out,
               " -H 'Content-Type: application/json' \\\n"
               "  -d '{\"model\":\"%s\",\"stream\":true,\"max_tokens\":100,"
               "\"messages\":[{\"role\":\"user\",\"content\":\"What is a sluice?\"}]}'\n",
               model_id);
}

/* In the folder's own environment for Python tools where there is one (make run makes it). */
static void put_sdk(struct buf *out, const char *dir, const char *model_id, int port)
{
    if (!file_exists(".venv/bin/pip"))
        buf_puts(out, "python3 -m venv .venv && ");
    buf_puts(out, ".venv/bin/pip install -q openai && KEY=\"");
    put_key(out, dir);
    buf_printf(out,
               "\" .venv/bin/python -c '\n"
               "import os, openai\n"
               "client = openai.OpenAI(base_url=\"http://127.0.0.1:%d/v1\", "
               "api_key=os.environ[\"KEY\"])\n"
               "for chunk in client.chat.completions.create(model=\"%s\", stream=True, "
               "max_tokens=100,\n"
               "        messages=[{\"role\": \"user\", \"content\": \"What is a sluice?\"}]):\n"
               "    print(chunk.choices[0].delta.content or \"\", end=\"\", flush=True)\n"
               "print()'\n",
               port, model_id);
}

static void put_usage(struct buf *out, const char *dir, int port)
{
    buf_printf(out,
               "curl -s \"http://127.0.0.1:%d/v1/organization/usage/completions"
               "?start_time=$(date -d yesterday +%%s)\" \\\n  ",
               port);
    put_authorization(out, dir);
    buf_putc(out, '\n');
}

void commands_put(struct buf *out, const char *dir, const char *model_id, int port, int tls_port,
                  int admin_port)
{
    buf_printf(out, "\nSluice is ready: http://127.0.0.1:%d", port);
    if (tls_port != 0)
        buf_printf(out, ", https://127.0.0.1:%d", tls_port);
    if (admin_port != 0)
        buf_printf(out, ", metrics on http://127.0.0.1:%d/metrics", admin_port);
    buf_puts(out, "\n\n# A streamed answer:\n");
    put_curl(out, dir, model_id, port);
    buf_puts(out, "\n# The same with OpenAI's own SDK:\n");
    put_sdk(out, dir, model_id, port);
    buf_puts(out, "\n# What it took:\n");
    put_usage(out, dir, port);
    buf_puts(out, "\nCtrl-C stops everything.\n");
}

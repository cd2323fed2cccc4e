/* A line of the log: its parts, what is dropped, and that nobody can write a second one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "base/utf8.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static char said[8192];
static int real_stderr, pipe_ends[2];

/* Standard error goes into a pipe from here to heard(). A line is far smaller than a pipe. */
static void listen_to_stderr(void)
{
    assert_int_equal(pipe(pipe_ends), 0);
    real_stderr = dup(STDERR_FILENO);
    assert_int_not_equal(dup2(pipe_ends[1], STDERR_FILENO), -1);
    close(pipe_ends[1]);
}

static const char *heard(void)
{
    size_t len = 0;
    ssize_t n;

    /* This closes the last end that writes. */
    assert_int_not_equal(dup2(real_stderr, STDERR_FILENO), -1);
    close(real_stderr);
    while ((n = read(pipe_ends[0], said + len, sizeof said - 1 - len)) > 0)
        len += (size_t)n;
    assert_int_equal(n, 0);
    close(pipe_ends[0]);
    said[len] = '\0';
    assert_int_equal(strlen(said), len);
    return said;
}

static void assert_one_line_without_controls(const char *line)
{
    const size_t len = strlen(line);

    assert_true(len > 0);
    assert_int_equal(line[len - 1], '\n');
    assert_true(utf8_is_valid(line, len));
    for (size_t i = 0; i + 1 < len; i++) {
        uint32_t cp;

        (void)utf8_decode(line + i, len - i, &cp);
        /* C0, DEL, and C1: of these a terminal takes U+009B as the beginning of a command. */
        if ((line[i] & 0xC0) != 0x80 && (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)))
            fail_msg("U+%04X at %zu", cp, i);
    }
}

static void test_a_line_has_time_level_process_event_and_request(void **state)
{
    static const char shape[] = "0000-00-00T00:00:00.000Z warn gateway quota.reserve "
                                "request=req_1 tenant=5 need=7\n";
    const char *line;

    (void)state;
    log_init("gateway", LOG_INFO);
    listen_to_stderr();
    log_warn("req_1", "quota.reserve", "tenant=%d need=%d", 5, 7);
    line = heard();
    assert_int_equal(strlen(line), strlen(shape));
    for (size_t i = 0; i < strlen("0000-00-00T00:00:00.000Z"); i++)
        assert_true(shape[i] == '0' ? isdigit((unsigned char)line[i]) : line[i] == shape[i]);
    assert_string_equal(strchr(line, ' '), strchr(shape, ' '));
}

static void test_without_a_request_none_is_named(void **state)
{
    (void)state;
    log_init("engine", LOG_INFO);
    listen_to_stderr();
    log_error(NULL, "engine.step", "%s", "late");
    assert_string_equal(strchr(heard(), ' '), " error engine engine.step late\n");
}

static void test_lines_below_the_level_are_dropped(void **state)
{
    (void)state;
    log_init("gateway", LOG_WARN);
    listen_to_stderr();
    log_debug(NULL, "a.a", "1");
    log_info(NULL, "a.a", "2");
    log_warn(NULL, "a.a", "3");
    log_error(NULL, "a.a", "4");
    assert_non_null(strstr(heard(), " warn gateway a.a 3\n"));
    assert_non_null(strstr(said, " error gateway a.a 4\n"));
    assert_null(strstr(said, "a.a 1"));
    assert_null(strstr(said, "a.a 2"));
}

static void test_no_control_character_leaves(void **state)
{
    (void)state;
    log_init("gateway", LOG_INFO);
    for (int c = 1; c < 0xA0; c++) {
        char text[8] = "a";

        (void)utf8_encode((uint32_t)c, text + 1);
        strcat(text, "b");
        listen_to_stderr();
        log_info("req_1", "a.a", "%s", text);
        assert_one_line_without_controls(heard());
    }
}

/* The request's name may be what a client sent; the event should be ours, and is no way in either.
 */
static void test_no_part_of_a_line_begins_another(void **state)
{
    static const char forged[] = "x\n2026-01-01T00:00:00.000Z error gateway forged\r\x1B[2J";

    (void)state;
    log_init("gateway", LOG_INFO);
    listen_to_stderr();
    log_info("req_1", "a.a", "%s", forged);
    assert_one_line_without_controls(heard());
    listen_to_stderr();
    log_info(forged, "a.a", "b");
    assert_one_line_without_controls(heard());
    listen_to_stderr();
    log_info(NULL, forged, "b");
    assert_one_line_without_controls(heard());
}

static void test_characters_of_any_script_stay(void **state)
{
    (void)state;
    log_init("gateway", LOG_INFO);
    listen_to_stderr();
    log_info(NULL, "a.a", "caf\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80 \xC2\xA0.");
    assert_non_null(strstr(heard(), "caf\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80 \xC2\xA0.\n"));
}

static void test_bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    log_init("gateway", LOG_INFO);
    listen_to_stderr();
    log_info(NULL, "a.a",
             "a\x9B"
             "b\xC3(\xED\xA0\x80"
             "c\xF0\x9F");
    assert_one_line_without_controls(heard());
    assert_non_null(strstr(said, "a?b?(???c??\n"));
}

/* Every length around the bound, of characters of four bytes: none is cut in its middle. */
static void test_a_long_line_is_cut_between_characters(void **state)
{
    char text[1400];

    (void)state;
    log_init("gateway", LOG_INFO);
    for (size_t n = 900; n < 1300; n++) {
        size_t len = n % 4;

        memset(text, 'x', len);
        while (len < n)
            len += utf8_encode(0x1F600, text + len);
        text[len] = '\0';
        listen_to_stderr();
        log_info(NULL, "a.a", "%s", text);
        assert_one_line_without_controls(heard());
        assert_null(strchr(said, '?'));
        assert_true(strlen(said) <= 1024);
    }
}

static void test_a_head_that_fills_the_line_is_cut_too(void **state)
{
    char text[2000];

    (void)state;
    log_init("gateway", LOG_INFO);
    for (size_t n = 900; n < 1100; n++) {
        memset(text, 'e', sizeof text);
        text[n] = '\0';
        listen_to_stderr();
        log_info(NULL, text, "%s", "message");
        assert_one_line_without_controls(heard());
        assert_true(strlen(said) <= 1024);
    }
}

static void test_nobody_to_hear_it_stops_nobody(void **state)
{
    const int kept = dup(STDERR_FILENO);

    (void)state;
    log_init("gateway", LOG_INFO);
    close(STDERR_FILENO);
    log_error(NULL, "a.a", "b");
    assert_int_not_equal(dup2(kept, STDERR_FILENO), -1);
    close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_has_time_level_process_event_and_request),
        cmocka_unit_test(test_without_a_request_none_is_named),
        cmocka_unit_test(test_lines_below_the_level_are_dropped),
        cmocka_unit_test(test_no_control_character_leaves),
        cmocka_unit_test(test_no_part_of_a_line_begins_another),
        cmocka_unit_test(test_characters_of_any_script_stay),
        cmocka_unit_test(test_bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(test_a_long_line_is_cut_between_characters),
        cmocka_unit_test(test_a_head_that_fills_the_line_is_cut_too),
        cmocka_unit_test(test_nobody_to_hear_it_stops_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sluice COMMAND ...: one table of commands. */
#include <stdio.h>
#include <string.h>

#include "app/cmd_bench.h"
#include "app/cmd_check_config.h"
#include "app/cmd_engine.h"
#include "app/cmd_generate.h"
#include "app/cmd_inspect.h"
#include "app/cmd_key.h"
#include "app/cmd_migrate.h"
#include "app/cmd_model.h"
#include "app/cmd_render.h"
#include "app/cmd_score.h"
#include "app/cmd_serve.h"
#include "app/cmd_status.h"
#include "app/cmd_tokenize.h"
#include "app/cmd_usage.h"
#include "app/up/up.h"
#include "app/version.h"
#include "base/size.h"

/* Exit codes: 0 done, 1 failed, 2 used wrongly. */
#define EXIT_USAGE 2

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is "sluice NAME": getopt begins with it */
    const char *help;
};

static const struct command commands[] = {
    {"up", cmd_up, "start everything under one folder: databases, engine, gateway"},
    {"serve", cmd_serve, "the gateway: HTTP, keys, limits, billing"},
    {"engine", cmd_engine, "the engine process: one model on one device"},
    {"status", cmd_status, "is the engine at work and the gateway ready?"},
    {"model", cmd_model, "list, load, unload and swap the models of a running supervisor"},
    {"migrate", cmd_migrate, "bring the database's schema up to date"},
    {"check-config", cmd_check_config, "say whether a configuration file is right"},
    {"key", cmd_key, "create, list, disable, enable and expire API keys"},
    {"usage", cmd_usage, "export usage rows"},
    {"inspect", cmd_inspect, "what is in a model file"},
    {"tokenize", cmd_tokenize, "text to token ids"},
    {"render", cmd_render, "messages through the model's chat template"},
    {"generate", cmd_generate, "continue a prompt, without a server"},
    {"score", cmd_score, "log-probability of every token of a text"},
    {"bench", cmd_bench, "how fast this machine runs a model"},
    {"version", cmd_version, "what this binary is"},
    {"help", cmd_help, "this list"},
};

static int cmd_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("usage: sluice COMMAND [OPTION...]\n");
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        printf("  %-14s%s\n", commands[i].name, commands[i].help);
    puts("\nsluice COMMAND --help tells a command's options.");
    return 0;
}

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("sluice %s\n", version_text());
    return 0;
}

/* "--help" and "--version" for those who try them first. */
static const char *command_name(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return "help";
    if (strcmp(word, "--version") == 0)
        return "version";
    return word;
}

static int run_command(const struct command *c, int argc, char **argv)
{
    char name[32];

    snprintf(name, sizeof name, "sluice %s", c->name);
    argv[0] = name;
    return c->run(argc, argv);
}

int main(int argc, char **argv)
{
    const char *name;

    if (argc < 2) {
        fputs("sluice: which command? \"sluice help\" lists them\n", stderr);
        return EXIT_USAGE;
    }
    name = command_name(argv[1]);
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return run_command(&commands[i], argc - 1, argv + 1);
    fprintf(stderr, "sluice: there is no command \"%s\"; \"sluice help\" lists them\n", name);
    return EXIT_USAGE;
}

/* The engine's main. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("fvd " FV_VERSION);
        return 0;
    }
    fprintf(stderr, "usage: fvd --version\n");
    return 2;
}

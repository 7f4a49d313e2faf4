#include <stdio.h>

int main(void) {
    char line[100];
    while (fgets(line, sizeof line, stdin)) printf("out %s", line);
    fputs("err é\n", stderr);
    return 3;
}

#include <stdio.h>
#include <unistd.h>

int main(void) {
    if (fork() == 0) execlp("sleep", "sleep", "1000", (char *)0);
    puts("go");
    fflush(stdout);
    for (;;) {}
}

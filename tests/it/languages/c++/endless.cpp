#include <iostream>
#include <unistd.h>

int main() {
    if (fork() == 0) execlp("sleep", "sleep", "1000", nullptr);
    std::cout << "go" << std::endl;
    for (volatile bool on = true; on;) {}
}

#include <iostream>
#include <string>

int main() {
    for (std::string line; std::getline(std::cin, line);) std::cout << "out " << line << '\n';
    std::cerr << "err é\n";
    return 3;
}

class Broken {
    int n = "a";
}

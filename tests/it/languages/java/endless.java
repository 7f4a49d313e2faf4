class Endless {
    public static void main(String[] arguments) throws Exception {
        new ProcessBuilder("sleep", "1000").start();
        System.out.println("go");
        while (true) {}
    }
}

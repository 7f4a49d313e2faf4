import java.io.BufferedReader;
import java.io.InputStreamReader;

public class Whole {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        in.lines().forEach(line -> System.out.println("out " + line));
        System.err.println("err é");
        System.exit(3);
    }
}

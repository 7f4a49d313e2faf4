fn main() {
    for line in std::io::stdin().lines() {
        println!("out {}", line.unwrap());
    }
    eprintln!("err é");
    std::process::exit(3);
}

fn main() {
    std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    println!("go");
    loop {}
}

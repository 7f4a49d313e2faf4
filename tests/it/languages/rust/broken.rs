fn main() {
    let n: i32 = "a";
}

const n = 1;
console.log(n;

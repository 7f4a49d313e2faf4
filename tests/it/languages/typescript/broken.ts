const text: string = "a";
const n: number = text;

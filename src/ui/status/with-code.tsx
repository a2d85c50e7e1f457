const codeParts =
  /(npm start(?: -- --(?:host(?: --relay| --ice-servers turn:HOST:3478)?|allow-origin))?|docs\/\w+\.md|https?:\/\/[\w.:-]+|chrome:\/\/[\w/#-]+|--[\w-]+(?:=\w+)?)/

/** Commands, addresses and flags in a sentence, set as code. */
export function withCode(text: string) {
  return text
    .split(codeParts)
    .map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))
}

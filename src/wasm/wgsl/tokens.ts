import { GpuError } from '../../util/errors.ts'

/** The words of a shader, without blanks and comments, and behind them one that is empty. */
export interface Tokens {
  readonly texts: string[]
  /** Of each word. */
  readonly lines: Uint32Array
}

const comment = /\/\/.*|\/\*[\s\S]*?(?:\*\/|$)/
const name = /[a-zA-Z_]\w*/
const number =
  /0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+[fh]?|0[xX][0-9a-fA-F]+[iu]?|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fh]?|[0-9]+[eE][+-]?[0-9]+[fh]?|[0-9]+[fhiu]?/
const sign = /<<=|>>=|->|&&|\|\||<<|>>|<=|>=|==|!=|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|\+\+|--|\S/
const word = new RegExp(
  [/\n/, comment, name, number, sign].map(({ source }) => source).join('|'),
  'g',
)
const [slash, star] = [0x2f, 0x2a]

export const shaderError = (line: number, what: string): GpuError =>
  new GpuError('gpu.compile', `shader: line ${line}: ${what}`)

/** errors: `gpu.compile`. */
export function tokensOf(wgsl: string): Tokens {
  // All at once takes half the time of one by one.
  const texts: string[] = wgsl.match(word) ?? []
  const lines = new Uint32Array(texts.length + 1)
  let line = 1
  let count = 0
  for (let at = 0; at < texts.length; at++) {
    const text = texts[at]
    if (text === '\n') line++
    else if (text.charCodeAt(0) === slash && text.charCodeAt(1) === star) {
      if (text.length < 4 || !text.endsWith('*/')) throw shaderError(line, 'a comment has no end')
      line += text.split('\n').length - 1
    } else if (text.charCodeAt(0) !== slash || text.charCodeAt(1) !== slash) {
      texts[count] = text
      lines[count++] = line
    }
  }
  texts.length = count
  texts.push('')
  lines[count] = line
  return { texts, lines }
}

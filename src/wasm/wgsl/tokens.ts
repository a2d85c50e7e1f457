import { GpuError } from '../../util/errors.ts'

export interface Token {
  readonly kind: 'name' | 'number' | 'sign' | 'end'
  readonly text: string
  readonly line: number
}

const blank = /\s+|\/\/.*|\/\*[\s\S]*?\*\//
const name = /[a-zA-Z_]\w*/
const number =
  /0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+[fh]?|0[xX][0-9a-fA-F]+[iu]?|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fh]?|[0-9]+[eE][+-]?[0-9]+[fh]?|[0-9]+[fhiu]?/
const sign =
  /<<=|>>=|->|&&|\|\||<<|>>|<=|>=|==|!=|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|\+\+|--|[-+*/%&|^~!<>=(){}[\],;:.@]/
const word = new RegExp(
  [blank, name, number, sign].map(({ source }) => `(${source})`).join('|'),
  'y',
)

export const shaderError = (line: number, what: string): GpuError =>
  new GpuError('gpu.compile', `shader: line ${line}: ${what}`)

/** The words of a shader, without blanks and comments. errors: `gpu.compile`. */
export function tokensOf(wgsl: string): Token[] {
  const tokens: Token[] = []
  let line = 1
  for (let at = 0; at < wgsl.length; at = word.lastIndex) {
    word.lastIndex = at
    const found = word.exec(wgsl)
    if (!found) throw shaderError(line, `unexpected "${wgsl[at]}"`)
    const [text, isBlank, isName, isNumber] = found
    if (isBlank) {
      for (const one of text) if (one === '\n') line++
    } else {
      if (text === '/' && wgsl[at + 1] === '*') throw shaderError(line, 'a comment has no end')
      tokens.push({ kind: isName ? 'name' : isNumber ? 'number' : 'sign', text, line })
    }
  }
  tokens.push({ kind: 'end', text: 'the end', line })
  return tokens
}

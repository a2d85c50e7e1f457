import { GpuError } from '../../util/errors.ts'

export interface Token {
  readonly kind: 'name' | 'number' | 'sign' | 'end'
  readonly text: string
  readonly line: number
}

const signs =
  /^(?:<<=|>>=|->|&&|\|\||<<|>>|<=|>=|==|!=|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|\+\+|--|[-+*/%&|^~!<>=(){}[\],;:.@])/
const number =
  /^(?:0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+[fh]?|0[xX][0-9a-fA-F]+[iu]?|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fh]?|[0-9]+[eE][+-]?[0-9]+[fh]?|[0-9]+[fhiu]?)/

export const shaderError = (line: number, what: string): GpuError =>
  new GpuError('gpu.compile', `shader: line ${line}: ${what}`)

/** The words of a shader, without blanks and comments. errors: `gpu.compile`. */
export function tokensOf(wgsl: string): Token[] {
  const tokens: Token[] = []
  let line = 1
  let at = 0
  const take = (kind: Token['kind'], text: string) => {
    tokens.push({ kind, text, line })
    at += text.length
  }
  while (at < wgsl.length) {
    const rest = wgsl.slice(at, at + 80)
    if (rest[0] === '\n') {
      line++
      at++
    } else if (/^\s/.test(rest)) at++
    else if (rest.startsWith('//')) {
      const end = wgsl.indexOf('\n', at)
      at = end < 0 ? wgsl.length : end
    } else if (rest.startsWith('/*')) {
      const end = wgsl.indexOf('*/', at)
      if (end < 0) throw shaderError(line, 'a comment has no end')
      line += wgsl.slice(at, end).split('\n').length - 1
      at = end + 2
    } else {
      const name = /^[a-zA-Z_]\w*/.exec(rest)?.[0]
      const digits = name ? undefined : number.exec(rest)?.[0]
      const sign = name || digits ? undefined : signs.exec(rest)?.[0]
      if (name) take('name', name)
      else if (digits) take('number', digits)
      else if (sign) take('sign', sign)
      else throw shaderError(line, `unexpected "${rest[0]}"`)
    }
  }
  tokens.push({ kind: 'end', text: 'the end', line })
  return tokens
}

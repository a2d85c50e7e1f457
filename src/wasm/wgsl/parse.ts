import type {
  Declaration,
  Expression,
  Field,
  FunctionDeclaration,
  ModuleVariable,
  Shader,
  Statement,
  TypeName,
} from './syntax.ts'
import { shaderError, type Tokens, tokensOf } from './tokens.ts'

/** Binary operators by how tightly they bind, the loosest first. */
const operators: readonly (readonly string[])[] = [
  ['||'],
  ['&&'],
  ['|'],
  ['^'],
  ['&'],
  ['==', '!='],
  ['<', '>', '<=', '>='],
  ['<<', '>>'],
  ['+', '-'],
  ['*', '/', '%'],
]
const levels = new Map(operators.flatMap((same, level) => same.map((one) => [one, level] as const)))
const sumLevel = levels.get('+')!
const assignments = ['=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>=']
const prefixes = ['-', '!', '~', '&', '*']
const isNumber = /^\.?[0-9]/
const isName = /^[a-zA-Z_]/
/** Calls whose name has angle brackets. */
const generic = /^(?:vec[234]|array|bitcast|atomic)$/

/** Parses a shader. errors: `gpu.compile` with the line, also for parts of WGSL that no kernel uses. */
export const parse = (wgsl: string): Shader => new Parser(tokensOf(wgsl)).shader()

type Literal = Pick<Extract<Expression, { kind: 'number' }>, 'value' | 'suffix'>

class Parser {
  readonly #texts: string[]
  readonly #lines: Uint32Array
  #at = 0
  /** Those that were read, by their texts. */
  readonly #literals = new Map<string, Literal>()

  constructor({ texts, lines }: Tokens) {
    this.#texts = texts
    this.#lines = lines
  }

  /** The next word; empty at the end. */
  get #next(): string {
    return this.#texts[this.#at]
  }

  get #line(): number {
    return this.#lines[this.#at]
  }

  #is(text: string): boolean {
    return this.#texts[this.#at] === text
  }

  #takes(text: string): boolean {
    if (this.#texts[this.#at] !== text) return false
    this.#at++
    return true
  }

  #expect(text: string): void {
    if (!this.#takes(text)) throw this.#unexpected(`"${text}"`)
  }

  #unexpected(wanted: string): Error {
    const found = this.#next ? `"${this.#next}"` : 'the end'
    return shaderError(this.#line, `expected ${wanted}, got ${found}`)
  }

  #name(): string {
    const text = this.#next
    if (!isName.test(text)) throw this.#unexpected('a name')
    this.#at++
    return text
  }

  shader(): Shader {
    const aliases = new Map<string, TypeName>()
    const structs = new Map<string, readonly Field[]>()
    const constants: Declaration[] = []
    const variables: ModuleVariable[] = []
    const functions = new Map<string, FunctionDeclaration>()
    let workgroupSize: readonly Expression[] = []
    while (this.#next) {
      const attributes = this.#attributes()
      const size = attributes.get('workgroup_size')
      if (this.#takes('alias')) {
        const name = this.#name()
        this.#expect('=')
        aliases.set(name, this.#type())
        this.#expect(';')
      } else if (this.#takes('struct')) structs.set(this.#name(), this.#fields('{', '}'))
      else if (this.#takes('fn')) {
        const made = this.#function()
        functions.set(made.name, made)
        if (size) workgroupSize = size
      } else if (this.#is('const')) constants.push(this.#declaration())
      else variables.push(this.#variable(attributes.get('binding')))
      this.#takes(';')
    }
    return { aliases, structs, constants, variables, functions, workgroupSize }
  }

  #attributes(): Map<string, readonly Expression[]> {
    const attributes = new Map<string, readonly Expression[]>()
    while (this.#takes('@')) {
      const name = this.#name()
      attributes.set(name, this.#is('(') ? this.#arguments() : [])
    }
    return attributes
  }

  #variable(binding: readonly Expression[] | undefined): ModuleVariable {
    const line = this.#line
    this.#expect('var')
    let space = 'private'
    let isWritable = true
    if (this.#takes('<')) {
      space = this.#name()
      if (space === 'storage') isWritable = this.#takes(',') && this.#name() === 'read_write'
      this.#expect('>')
    }
    const name = this.#name()
    this.#expect(':')
    const type = this.#type()
    this.#expect(';')
    if (space !== 'storage' && space !== 'workgroup' && space !== 'private')
      throw shaderError(line, `variables in "${space}" are not supported`)
    const number = binding?.[0]?.kind === 'number' ? binding[0].value : -1
    return { name, type, space, isWritable, binding: number, line }
  }

  #fields(open: string, close: string): Field[] {
    const fields: Field[] = []
    this.#expect(open)
    while (!this.#takes(close)) {
      const builtin = this.#attributes().get('builtin')?.[0]
      const name = this.#name()
      this.#expect(':')
      fields.push({
        name,
        type: this.#type(),
        ...(builtin?.kind === 'name' && { builtin: builtin.name }),
      })
      if (!this.#is(close)) this.#expect(',')
    }
    return fields
  }

  #function(): FunctionDeclaration {
    const line = this.#line
    const name = this.#name()
    const parameters = this.#fields('(', ')')
    const result = this.#takes('->') ? this.#type() : undefined
    return { name, parameters, result, body: this.#block(), line }
  }

  #type(): TypeName {
    const name = this.#name()
    return { name, arguments: this.#is('<') ? this.#typeArguments() : [] }
  }

  #typeArguments(): (TypeName | Expression)[] {
    const items: (TypeName | Expression)[] = []
    this.#expect('<')
    while (!this.#closesAngle()) {
      // A count may be an expression, of which none has a comparison.
      const isCount = isNumber.test(this.#next) || items.length > 0
      items.push(isCount ? this.#binary(sumLevel) : this.#type())
      this.#takes(',')
    }
    return items
  }

  /** Takes one `>`, which may be the first half of `>>`. */
  #closesAngle(): boolean {
    if (this.#takes('>')) return true
    if (!this.#is('>>')) return false
    this.#texts[this.#at] = '>'
    return true
  }

  #block(): Statement[] {
    const statements: Statement[] = []
    this.#expect('{')
    while (!this.#takes('}')) if (!this.#takes(';')) statements.push(this.#statement())
    return statements
  }

  #statement(): Statement {
    const line = this.#line
    if (this.#is('{')) return { kind: 'block', body: this.#block(), line }
    if (this.#takes('if')) return this.#if(line)
    if (this.#takes('for')) return this.#for(line)
    if (this.#takes('while'))
      return { kind: 'for', condition: this.#expression(), body: this.#block(), line }
    const made = this.#simple()
    this.#expect(';')
    return made
  }

  #if(line: number): Statement {
    const condition = this.#expression()
    const then = this.#block()
    let otherwise: Statement[] = []
    if (this.#takes('else')) {
      const at = this.#line
      otherwise = this.#takes('if') ? [this.#if(at)] : this.#block()
    }
    return { kind: 'if', condition, then, otherwise, line }
  }

  #for(line: number): Statement {
    this.#expect('(')
    const first = this.#is(';') ? undefined : this.#simple()
    this.#expect(';')
    const condition = this.#is(';') ? undefined : this.#expression()
    this.#expect(';')
    const next = this.#is(')') ? undefined : this.#simple()
    this.#expect(')')
    return { kind: 'for', first, condition, next, body: this.#block(), line }
  }

  #declaration(): Declaration {
    const line = this.#line
    const kind = this.#name() as Declaration['kind']
    const name = this.#name()
    const type = this.#takes(':') ? this.#type() : undefined
    const value = this.#takes('=') ? this.#expression() : undefined
    return { kind, name, type, value, line }
  }

  #simple(): Statement {
    const line = this.#line
    const text = this.#next
    if (text === 'let' || text === 'const' || text === 'var') return this.#declaration()
    if (text === 'break' || text === 'continue') {
      this.#at++
      return { kind: text, line }
    }
    if (this.#takes('return'))
      return { kind: 'return', value: this.#is(';') ? undefined : this.#expression(), line }
    const target = this.#unary()
    if (target.kind === 'call') return { kind: 'call', call: target, line }
    const sign = this.#next
    const one: Expression = { kind: 'number', value: 1, suffix: 'int', line }
    if (this.#takes('++')) return { kind: 'assign', target, operator: '+', value: one, line }
    if (this.#takes('--')) return { kind: 'assign', target, operator: '-', value: one, line }
    if (!assignments.includes(sign)) throw this.#unexpected('an assignment')
    this.#at++
    return { kind: 'assign', target, operator: sign.slice(0, -1), value: this.#expression(), line }
  }

  #expression(): Expression {
    return this.#binary(0)
  }

  /** With operators of `loosest` and tighter levels. */
  #binary(loosest: number): Expression {
    let left = this.#unary()
    for (;;) {
      const operator = this.#next
      const line = this.#line
      const level = levels.get(operator)
      if (level === undefined || level < loosest) return left
      this.#at++
      left = { kind: 'binary', operator, left, right: this.#binary(level + 1), line }
    }
  }

  #unary(): Expression {
    const operator = this.#next
    if (prefixes.includes(operator)) {
      const line = this.#line
      this.#at++
      const of = this.#unary()
      // The place that a pointer names stands for the pointer.
      return operator === '&' || operator === '*' ? of : { kind: 'unary', operator, of, line }
    }
    return this.#postfix(this.#primary())
  }

  #postfix(start: Expression): Expression {
    let value = start
    for (;;) {
      const line = this.#line
      if (this.#takes('[')) {
        value = { kind: 'index', of: value, index: this.#expression(), line }
        this.#expect(']')
      } else if (this.#takes('.')) value = { kind: 'member', of: value, name: this.#name(), line }
      else return value
    }
  }

  #primary(): Expression {
    const text = this.#next
    const line = this.#line
    if (this.#takes('(')) {
      const inner = this.#expression()
      this.#expect(')')
      return inner
    }
    if (isNumber.test(text)) {
      this.#at++
      const literal = this.#literals.get(text) ?? numberOf(text)
      this.#literals.set(text, literal)
      return { kind: 'number', value: literal.value, suffix: literal.suffix, line }
    }
    if (text === 'true' || text === 'false') {
      this.#at++
      return { kind: 'bool', value: text === 'true', line }
    }
    const name = this.#name()
    const isGeneric = this.#is('<') && generic.test(name)
    const types = isGeneric ? this.#typeArguments() : []
    if (!this.#is('(')) return { kind: 'name', name, line }
    return { kind: 'call', type: { name, arguments: types }, arguments: this.#arguments(), line }
  }

  #arguments(): Expression[] {
    const items: Expression[] = []
    this.#expect('(')
    while (!this.#takes(')')) {
      items.push(this.#expression())
      if (!this.#is(')')) this.#expect(',')
    }
    return items
  }
}

function numberOf(text: string): Literal {
  const hex = /^0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?\d+))?([fhiu]?)$/i.exec(text)
  if (hex && /^0x/i.test(text)) {
    const [, whole, fraction, power, suffix] = hex
    const isFloat = power !== undefined
    // Without an exponent a last f is a digit.
    const digits = isFloat ? whole + fraction : text.slice(2).replace(/[iu]$/, '')
    const scale = isFloat ? 2 ** (Number(power) - 4 * fraction.length) : 1
    const value = Number.parseInt(digits, 16) * scale
    return { value, suffix: isFloat ? 'f' : suffix === 'u' ? 'u' : suffix === 'i' ? 'i' : 'int' }
  }
  const last = text.at(-1)!
  if (last === 'f' || last === 'i' || last === 'u')
    return { value: Number(text.slice(0, -1)), suffix: last }
  return { value: Number(text), suffix: /[.e]/.test(text) ? 'float' : 'int' }
}

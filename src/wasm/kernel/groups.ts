import type { Label, Local } from '../assemble.ts'
import type { Expression, FunctionDeclaration, Statement } from '../wgsl/syntax.ts'
import { constant, type Part } from './arithmetic.ts'
import { jumpsOut } from './jumps.ts'
import type { Place } from './place.ts'
import { forEachExpression, hasBarrier } from './simplify.ts'
import { bytesOf, type Type } from './types.ts'
import type { Scratch } from './variables.ts'
import type { Writer } from './writer.ts'

interface Around {
  /** True if a barrier may follow what is being written, in a later statement or turn. */
  readonly hasBarrierAfter: boolean
  readonly end: Label
  readonly result?: Place
  readonly loop?: { readonly end: Label; readonly turn: Label }
  /** All statements of the function. */
  readonly whole: readonly Statement[]
}

/**
 * Writes the body of a kernel whose invocations wait for each other: each stretch between two barriers becomes a loop over the invocations of a
 * workgroup. What such stretches share lies in memory, a word for each invocation.
 *
 * WGSL lets barriers stand only where all invocations of a workgroup come or none does, so the first one decides about branches and loops that have one.
 * source: loop fission at barriers, as in pocl (Jääskeläinen et al., 2015).
 */
export class GroupWriter {
  readonly #writer: Writer
  readonly #withBarriers: ReadonlySet<string>
  readonly #functions: ReadonlyMap<string, FunctionDeclaration>
  readonly #scratch: Scratch
  /** Invocations of a workgroup. */
  readonly #count: number
  #names = 0

  constructor(
    writer: Writer,
    functions: ReadonlyMap<string, FunctionDeclaration>,
    withBarriers: ReadonlySet<string>,
    scratch: Scratch,
    count: number,
  ) {
    this.#writer = writer
    this.#functions = functions
    this.#withBarriers = withBarriers
    this.#scratch = scratch
    this.#count = count
  }

  /** Writes a function's body for all invocations; a return goes to `end`. */
  body(statements: readonly Statement[], end: Label, result?: Place): void {
    this.#statements(statements, { hasBarrierAfter: false, end, result, whole: statements })
  }

  #has(statement: Statement): boolean {
    return hasBarrier(statement, this.#withBarriers)
  }

  #statements(all: readonly Statement[], around: Around): void {
    this.#writer.within(() => {
      let stretch: Statement[] = []
      const flush = () => {
        this.#stretch(stretch, around)
        stretch = []
      }
      const last = around.hasBarrierAfter ? all.length : all.findLastIndex((one) => this.#has(one))
      for (const [i, one] of all.entries()) {
        const isBefore = i < last
        const isApart = this.#has(one) || (isBefore && jumpsOut(one))
        if (!isApart) {
          stretch.push(one)
          continue
        }
        if (one.kind === 'call' && this.#isBarrier(one.call)) {
          flush()
          continue
        }
        const rest = this.#withoutCalls(one, (before) => stretch.push(before), flush)
        if (rest && !(isBefore && jumpsOut(rest))) {
          stretch.push(rest)
          continue
        }
        flush()
        this.#apart(rest ?? one, { ...around, hasBarrierAfter: isBefore })
      }
      flush()
    })
  }

  #isBarrier({ type }: Extract<Expression, { kind: 'call' }>): boolean {
    return this.#withBarriers.has(type.name) && !this.#functions.has(type.name)
  }

  /** A statement for each invocation, with the module's variables and frames in reach. */
  #stretch(statements: readonly Statement[], around: Around): void {
    if (statements.length === 0) return
    const writer = this.#writer
    const kept = new Map<string, Place>()
    this.#eachInvocation((end) => {
      writer.within(() => {
        const plain: Statement[] = []
        const run = () => writer.body(plain.splice(0), end, around.result)
        for (const one of statements) {
          plain.push(one)
          const isShared =
            (one.kind === 'let' || one.kind === 'var' || one.kind === 'const') &&
            this.#isUsedOutside(one.name, statements, around.whole)
          if (!isShared) continue
          run()
          const place = writer.find(one.name)
          if (
            place.kind === 'value' &&
            place.value.parts.every((part) => part.kind === 'constant')
          ) {
            kept.set(one.name, place)
            continue
          }
          const frame = this.#frame(writer.typeOfPlace(place))
          writer.store(frame, writer.load(place), true)
          writer.bind(one.name, frame)
          kept.set(one.name, frame)
        }
        run()
      })
    })
    for (const [name, place] of kept) writer.bind(name, place)
  }

  #isUsedOutside(name: string, inside: readonly Statement[], whole: readonly Statement[]): boolean {
    const uses = (statements: readonly Statement[]) => {
      let count = 0
      for (const one of statements)
        forEachExpression(one, (expression) => {
          if (expression.kind === 'name' && expression.name === name) count++
        })
      return count
    }
    // What calls were replaced by is not in the whole.
    return name.startsWith('$') || uses(whole) !== uses(inside)
  }

  #frame(type: Type): Place {
    const offset = this.#scratch.take(bytesOf(type) * this.#count)
    return { kind: 'frame', type, offset, count: this.#count }
  }

  #eachInvocation(run: (end: Label) => void): void {
    const writer = this.#writer
    const { code } = writer
    const { lanes } = writer.values
    const total = code.i32Const(this.#count)
    code.loop(total, lanes, (at) => {
      const base = { kind: 'scalar', local: at, multiple: lanes } as const
      writer.invocation = lanes === 1 ? base : { kind: 'linear', base, stride: 1 }
      code.block(run)
    })
    writer.invocation = constant(0)
  }

  /** A condition that all invocations find the same. */
  #condition(expression: Expression): Local<'i32'> {
    const writer = this.#writer
    writer.invocation = constant(0)
    const [part] = writer.value(expression).parts as [Part]
    if (part.kind === 'vector') throw new Error('a uniform condition is a vector')
    return writer.arithmetic.word(
      'bool',
      part as { kind: 'scalar'; local: Local<'i32'> },
    ) as Local<'i32'>
  }

  /** Writes a statement that holds a barrier, or is left before one: all invocations do the same. */
  #apart(one: Statement, around: Around): void {
    const { code } = this.#writer
    switch (one.kind) {
      case 'block':
        this.#statements(one.body, around)
        return
      case 'if': {
        const then = () => this.#statements(one.then, around)
        const otherwise = () => this.#statements(one.otherwise, around)
        code.if(
          this.#condition(one.condition),
          then,
          one.otherwise.length > 0 ? otherwise : undefined,
        )
        return
      }
      case 'for':
        this.#for(one, around)
        return
      case 'return':
        if (one.value && around.result) {
          const { result } = around
          const { value } = one
          this.#eachInvocation(() => this.#writer.store(result, this.#writer.value(value), true))
        }
        code.branch(around.end)
        return
      case 'break':
        code.branch(around.loop!.end)
        return
      case 'continue':
        code.branch(around.loop!.turn)
        return
      default:
        throw new Error(`a barrier in a statement "${one.kind}"`)
    }
  }

  #for(one: Extract<Statement, { kind: 'for' }>, around: Around): void {
    const writer = this.#writer
    const { code } = writer
    writer.within(() => {
      // Its variable is read by the condition, which is no part of a stretch.
      if (one.first) this.#stretch([one.first], { ...around, whole: [...around.whole, one] })
      code.block((end) =>
        code.repeat((again) => {
          if (one.condition) code.branchIf(end, code.i32('i32.eqz', this.#condition(one.condition)))
          code.block((turn) =>
            this.#statements(one.body, { ...around, hasBarrierAfter: true, loop: { end, turn } }),
          )
          if (one.next) this.#stretch([one.next], around)
          code.branch(again)
        }),
      )
    })
  }

  /**
   * A statement whose calls with barriers are written before it and replaced by their results; undefined where it is one that holds others.
   */
  #withoutCalls(
    one: Statement,
    before: (statement: Statement) => void,
    flush: () => void,
  ): Statement | undefined {
    const replace = (expression: Expression): Expression => {
      switch (expression.kind) {
        case 'call': {
          const given = expression.arguments.map(replace)
          if (!this.#withBarriers.has(expression.type.name))
            return { ...expression, arguments: given }
          return this.#call(expression, given, before, flush)
        }
        case 'unary':
        case 'member':
          return { ...expression, of: replace(expression.of) }
        case 'index':
          return { ...expression, of: replace(expression.of), index: replace(expression.index) }
        case 'binary':
          return { ...expression, left: replace(expression.left), right: replace(expression.right) }
        default:
          return expression
      }
    }
    switch (one.kind) {
      case 'let':
      case 'const':
      case 'var':
      case 'return':
        return { ...one, value: one.value && replace(one.value) }
      case 'assign':
        return { ...one, value: replace(one.value) }
      case 'call': {
        const result = replace(one.call)
        return result.kind === 'call'
          ? { ...one, call: result }
          : { kind: 'block', body: [], line: one.line }
      }
      default:
        return undefined
    }
  }

  /** Writes a call for all invocations; returns the name of what holds its results. */
  #call(
    { type, line }: Extract<Expression, { kind: 'call' }>,
    given: readonly Expression[],
    before: (statement: Statement) => void,
    flush: () => void,
  ): Expression {
    const writer = this.#writer
    const own = this.#functions.get(type.name)!
    const number = this.#names++
    const names = own.parameters.map(({ name }) => `$${name}${number}`)
    for (const [i, parameter] of own.parameters.entries())
      before({ kind: 'let', name: names[i], type: parameter.type, value: given[i], line })
    flush()
    const places = names.map((name) => writer.find(name))
    const result = own.result && this.#frame(writer.type(own.result, own.line))
    writer.code.block((end) =>
      writer.function(() => {
        for (const [i, { name }] of own.parameters.entries()) writer.bind(name, places[i])
        this.#statements(own.body, { hasBarrierAfter: false, end, result, whole: own.body })
      }),
    )
    const name = `$result${number}`
    if (result) writer.bind(name, result)
    return { kind: 'name', name, line }
  }
}

import type { Label, Local } from '../assemble.ts'
import type { Declaration, Expression, FunctionDeclaration, Statement } from '../wgsl/syntax.ts'
import { shaderError } from '../wgsl/tokens.ts'
import { isUniform } from './arithmetic.ts'
import { Expressions } from './expressions.ts'
import { hasReturn, jumpsOut } from './jumps.ts'
import type { Mask, Place } from './place.ts'
import { scalar } from './types.ts'
import { elementOf, type Value } from './value.ts'

/** A loop or a function's body, which its statements may leave. */
interface Frame {
  readonly kind: 'loop' | 'function'
  readonly end: Label
  /** Of a loop: the end of its turn. */
  readonly turn?: Label
  /** Who ran at its begin; of a loop that invocations leave one by one, in each turn. */
  mask: Mask
  /** Who has left for good, where not all do at once. */
  readonly gone?: Local<'v128'>
  /** Who has left this turn. */
  readonly skipped?: Local<'v128'>
  readonly result?: Place
  readonly key: string
}

/** Writes the code of a kernel's body for one invocation, or for four neighbouring ones at once. */
export class Writer extends Expressions {
  #frames: Frame[] = []
  /** Of four invocations of which not all do the same at the begin: where they are computed one by one. */
  bail: Label | undefined
  hasBailed = false

  /** Writes a function's body in place of its call. */
  inline(own: FunctionDeclaration, given: readonly Value[]): Value {
    return this.function(() => {
      for (const [i, { name, type }] of own.parameters.entries()) {
        const wanted = this.type(type, own.line)
        const element = elementOf(wanted)
        const value = element ? this.values.as(given[i], element) : given[i]
        this.bind(name, { kind: 'value', value: { ...value, type: wanted } })
      }
      return this.#body(own)
    })
  }

  #body(own: FunctionDeclaration): Value {
    const type = own.result && this.type(own.result, own.line)
    const last = own.body.at(-1)
    const isStraight = own.body.every((one) => one === last || !hasReturn(one))
    if (isStraight && type && last?.kind === 'return') {
      this.statements(own.body.slice(0, -1))
      const value = this.values.as(this.value(last.value!), elementOf(type) ?? 'f32')
      return this.hold({ ...this.spread(value, type), type })
    }
    if (isStraight && !type && (!last || !hasReturn(last))) {
      this.statements(own.body)
      return { type: scalar('bool'), parts: [] }
    }
    const key = `${this.path}:result`
    const result = type && this.locals(key, type)
    const outer = this.mask
    const gone = this.findings.has(`${key}:gone`) ? this.#empty() : undefined
    this.code.block((end) => {
      this.#frames.push({ kind: 'function', end, mask: outer, gone, result, key })
      this.statements(own.body)
      this.#frames.pop()
    })
    this.mask = outer
    return result ? this.load(result) : { type: scalar('bool'), parts: [] }
  }

  #empty(): Local<'v128'> {
    const none = this.code.local('v128')
    this.code.set(none, this.code.v128Const([0, 0, 0, 0]))
    return none
  }

  /** Writes statements of a function that is no other's part; a return goes to `end`. */
  body(statements: readonly Statement[], end: Label, result?: Place): void {
    const key = `${this.path}:body${this.calls++}`
    const gone = this.findings.has(`${key}:gone`) ? this.#empty() : undefined
    this.#frames = [{ kind: 'function', end, mask: null, gone, result, key }]
    this.statements(statements)
    this.#frames = []
    this.mask = null
  }

  statements(all: readonly Statement[]): void {
    for (const one of all) this.statement(one)
  }

  statement(one: Statement): void {
    switch (one.kind) {
      case 'let':
      case 'const':
      case 'var':
        this.declare(one)
        return
      case 'assign':
        this.#assign(one)
        return
      case 'if':
        this.#if(one)
        return
      case 'for':
        this.#for(one)
        return
      case 'block':
        this.within(() => this.statements(one.body))
        return
      case 'call':
        this.call(one.call)
        return
      default:
        this.#leave(one)
    }
  }

  declare({ kind, name, type, value, line }: Declaration): void {
    const wanted = type && this.type(type, line)
    const element = wanted && elementOf(wanted)
    const given = value && this.value(value)
    const typed =
      given &&
      (element
        ? this.values.as(given, element)
        : kind === 'const'
          ? given
          : this.values.concrete(given))
    if (kind === 'var') this.bind(name, this.variable(name, wanted ?? typed!.type, line, typed))
    else
      this.bind(name, {
        kind: 'value',
        value: this.hold(wanted ? this.spread(typed!, wanted) : typed!),
      })
  }

  #assign({ target, operator, value, line }: Extract<Statement, { kind: 'assign' }>): void {
    if (target.kind === 'name' && target.name === '_') {
      this.value(value)
      return
    }
    const place = this.place(target)
    if (!place) throw shaderError(line, 'expected a variable')
    const given = this.value(value)
    this.store(place, operator ? this.combine(operator, this.load(place), given, line) : given)
  }

  #if({ condition, then, otherwise }: Extract<Statement, { kind: 'if' }>): void {
    const [test] = this.value(condition).parts
    const branch = (body: readonly Statement[]) => this.within(() => this.statements(body))
    if (test.kind === 'constant') {
      branch(test.value ? then : otherwise)
      return
    }
    if (isUniform(test)) {
      this.#ifUniform(this.arithmetic.word('bool', test) as Local<'i32'>, then, otherwise)
      return
    }
    const vector = this.arithmetic.vector('bool', test)
    if (this.bail && !this.hasStored && this.mask === null && this.#frames.length === 1) {
      this.#ifSame(vector, then, otherwise)
      return
    }
    const outer = this.mask
    const run = (mask: Local<'v128'>, body: readonly Statement[]) => {
      if (body.length === 0) return
      this.code.if(this.code.i32('v128.any_true', mask), () => {
        this.mask = mask
        branch(body)
      })
    }
    const no = this.code.v128('v128.not', vector)
    run(this.both(outer, test), then)
    run(this.both(outer, { kind: 'vector', local: no }), otherwise)
    this.mask = this.#remaining(outer, [...then, ...otherwise])
  }

  /** Both branches begin with the same invocations; who has left in one of them runs no more. */
  #ifUniform(
    test: Local<'i32'>,
    then: readonly Statement[],
    otherwise: readonly Statement[],
  ): void {
    const outer = this.mask
    const branch = (body: readonly Statement[]) => () => {
      this.mask = outer
      this.within(() => this.statements(body))
    }
    this.code.if(test, branch(then), otherwise.length > 0 ? branch(otherwise) : undefined)
    this.mask = this.#remaining(outer, [...then, ...otherwise])
  }

  /** At the begin of a kernel: where invocations do not all do the same, they are computed one by one. */
  #ifSame(test: Local<'v128'>, then: readonly Statement[], otherwise: readonly Statement[]): void {
    const isAny = this.code.i32('v128.any_true', test)
    const areAll = this.code.i32('i32x4.all_true', test)
    this.hasBailed = true
    this.code.branchIf(this.bail!, this.code.i32('i32.ne', isAny, areAll))
    this.#ifUniform(isAny, then, otherwise)
  }

  /** Of those that ran before branches, those that no jump in one of them has stopped. */
  #remaining(outer: Mask, branches: readonly Statement[]): Mask {
    if (!branches.some((one) => jumpsOut(one))) return outer
    let gone: Local<'v128'> | undefined
    const add = (more: Local<'v128'> | undefined) => {
      if (more) gone = gone ? this.code.v128('v128.or', gone, more) : more
    }
    for (let i = this.#frames.length - 1; i >= 0; i--) {
      const frame = this.#frames[i]
      add(frame.gone)
      add(frame.skipped)
      if (frame.kind === 'function') break
    }
    if (!gone) return outer
    return outer === null
      ? this.code.v128('v128.not', gone)
      : this.code.v128('v128.andnot', outer, gone)
  }

  #for(statement: Extract<Statement, { kind: 'for' }>): void {
    this.within(() => {
      const { first } = statement
      if (first) this.statement(first)
      const counter = first?.kind === 'var' ? this.find(first.name, first.line) : undefined
      const key = `${this.path}:loop${this.calls++}`
      const outer = this.mask
      const gone = this.findings.has(`${key}:gone`) ? this.#empty() : undefined
      const loop = { kind: 'loop', gone, key } as const
      const { condition } = statement
      if (condition && !gone) {
        const first = this.calls
        const isOn = () => {
          // Written twice, it has the same keys each time.
          const next = this.calls
          this.calls = first
          const [test] = this.value(condition).parts
          this.calls = Math.max(this.calls, next)
          if (isUniform(test)) return this.arithmetic.word('bool', test) as Local<'i32'>
          this.findings.add(`${key}:gone`)
          return this.code.i32Const(0)
        }
        this.code.while(isOn, (end) =>
          this.#turn(statement, { ...loop, end, mask: outer }, counter),
        )
      } else {
        this.code.block((end) =>
          this.code.repeat((again) => {
            const mask = this.#staying(outer, gone, condition, end)
            this.#turn(statement, { ...loop, end, mask }, counter)
            this.code.branch(again)
          }),
        )
      }
      this.mask = this.#remaining(outer, statement.body.filter(hasReturn))
    })
  }

  #without(mask: Mask, gone: Local<'v128'>): Local<'v128'> {
    return mask === null
      ? this.code.v128('v128.not', gone)
      : this.code.v128('v128.andnot', mask, gone)
  }

  /** Who runs a turn of a loop that invocations leave one by one; goes to `end` where nobody does. */
  #staying(
    outer: Mask,
    gone: Local<'v128'> | undefined,
    condition: Expression | undefined,
    end: Label,
  ): Mask {
    if (!gone) return outer
    const leaveUnless = (word: Local<'i32'>) =>
      this.code.branchIf(end, this.code.i32('i32.eqz', word))
    const mask = this.#without(outer, gone)
    leaveUnless(this.code.i32('v128.any_true', mask))
    if (!condition) return mask
    this.mask = mask
    const [test] = this.value(condition).parts
    if (isUniform(test)) {
      leaveUnless(this.arithmetic.word('bool', test) as Local<'i32'>)
      return mask
    }
    const stop = this.both(mask, this.arithmetic.not(test))
    this.code.set(gone, this.code.v128('v128.or', gone, stop))
    const staying = this.both(mask, test)
    leaveUnless(this.code.i32('v128.any_true', staying))
    return staying
  }

  #turn(
    { next, body }: Extract<Statement, { kind: 'for' }>,
    loop: Frame,
    counter: Place | undefined,
  ): void {
    const skipped = this.findings.has(`${loop.key}:skipped`) ? this.#empty() : undefined
    const frame: Frame = { ...loop, skipped }
    this.mask = frame.mask
    this.code.block((turn) => {
      this.#frames.push({ ...frame, turn })
      this.within(() => this.statements(body))
      this.#frames.pop()
    })
    this.mask = frame.mask
    this.counter = counter
    if (next) this.statement(next)
    this.counter = undefined
  }

  #leave(one: Extract<Statement, { kind: 'return' | 'break' | 'continue' }>): void {
    const kind = one.kind === 'return' ? 'function' : 'loop'
    const at = this.#frames.findLastIndex((frame) => frame.kind === kind)
    const frame = this.#frames[at]
    if (!frame) throw shaderError(one.line, `"${one.kind}" outside of a ${kind}`)
    if (one.kind === 'return' && one.value && frame.result) {
      const value = this.value(one.value)
      const isAll = frame.mask === this.mask
      this.store(frame.result, value, isAll)
    }
    if (frame.mask === this.mask) {
      this.code.branch(one.kind === 'continue' ? frame.turn! : frame.end)
      return
    }
    // Those that run now leave; the others go on.
    const mark = (which: 'gone' | 'skipped', of: Frame) => {
      const set = of[which]
      if (set && this.mask) this.code.set(set, this.code.v128('v128.or', set, this.mask))
      else this.findings.add(`${of.key}:${which}`)
    }
    for (const inner of this.#frames.slice(at + 1)) if (inner.kind === 'loop') mark('gone', inner)
    mark(one.kind === 'continue' ? 'skipped' : 'gone', frame)
    this.mask = this.code.v128Const([0, 0, 0, 0])
  }
}

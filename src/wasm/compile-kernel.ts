import { assemble, FunctionCode, type Local } from './assemble.ts'
import { constant, laneCount, type Part } from './kernel/arithmetic.ts'
import type { KernelSource } from './kernel/expressions.ts'
import { GroupWriter } from './kernel/groups.ts'
import type { Place } from './kernel/place.ts'
import { functionsWithBarriers, simplify } from './kernel/simplify.ts'
import { scalar, type Type, vectorOf } from './kernel/types.ts'
import type { Value } from './kernel/value.ts'
import { Findings, type Scratch } from './kernel/variables.ts'
import { Writer } from './kernel/writer.ts'
import { parse } from './wgsl/parse.ts'
import type { Expression, FunctionDeclaration, Shader } from './wgsl/syntax.ts'
import { shaderError } from './wgsl/tokens.ts'

/** A shader that was compiled to WebAssembly. */
export interface CompiledKernel {
  /** A module that imports `host.memory` and exports `run`. */
  readonly code: Uint8Array<ArrayBuffer>
  /** Numbers of `@binding`, in the order of the addresses that `run` takes: ascending. */
  readonly bindings: readonly number[]
  /** Bytes that a thread needs for the variables of a workgroup and for arrays. */
  readonly scratchBytes: number
}

/** Of `run`, before the addresses of its bindings: workgroups `first` to `first + count - 1` in order, x the fastest. */
const runParameters = ['first', 'count', 'groupsX', 'groupsY', 'scratch'] as const

/** A kernel may be written so often until all is known about its variables; each time finds one more, or it is done. */
const maxAttempts = 200
const vectorBytes = 16

export interface CompileOptions {
  /** Whether threads share the memory. */
  readonly isShared?: boolean
  /** Whether `relaxed_madd` may be used: faster, with the bits of this CPU. */
  readonly isRelaxed?: boolean
}

/**
 * Compiles a compute shader to WebAssembly, where four neighbouring invocations are computed at once if none of its buffers holds vectors.
 *
 * errors: `gpu.compile` with the line.
 */
export function compileKernel(
  wgsl: string,
  { isShared = false, isRelaxed = false }: CompileOptions = {},
): CompiledKernel {
  const shader = parse(wgsl)
  const findings = new Findings()
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    findings.hasChanged = false
    const kernel = new Kernel(shader, findings, new FunctionCode({ isRelaxed }))
    const code = kernel.write()
    if (!findings.hasChanged)
      return {
        code: assemble({ run: code }, isShared),
        bindings: kernel.bindings,
        scratchBytes: kernel.scratchBytes,
      }
  }
  throw shaderError(1, 'its variables cannot be placed. Report this error with the shader.')
}

class Kernel {
  readonly #code: FunctionCode
  readonly #shader: Shader
  readonly #source: KernelSource
  readonly #findings: Findings
  readonly #global = new Map<string, Place>()
  readonly #first: Local<'i32'>
  readonly #count: Local<'i32'>
  readonly #groupsX: Local<'i32'>
  readonly #groupsY: Local<'i32'>
  readonly #scratchBase: Local<'i32'>
  readonly bindings: readonly number[]
  readonly #workgroupSize: readonly [number, number, number]
  scratchBytes = 0
  /** Of those, at the begin: variables of the workgroup. */
  readonly #workgroupBytes: number
  readonly #withBarriers: ReadonlySet<string>

  constructor(shader: Shader, findings: Findings, code: FunctionCode) {
    this.#code = code
    this.#shader = shader
    this.#findings = findings
    const parameters = runParameters.map(() => this.#code.parameter('i32'))
    ;[this.#first, this.#count, this.#groupsX, this.#groupsY, this.#scratchBase] = parameters
    const buffers = this.#shader.variables
      .filter(({ space }) => space === 'storage')
      .sort((a, b) => a.binding - b.binding)
    this.bindings = buffers.map(({ binding }) => binding)
    const addresses = buffers.map(() => this.#code.parameter('i32'))
    this.#source = { shader, functions: shader.functions }
    const plain = this.#writer(1)
    for (const constants of this.#shader.constants) {
      plain.declare(constants)
      const place = plain.find(constants.name)
      this.#global.set(constants.name, place)
    }
    const whole = (expression: Expression | undefined): number => {
      if (!expression) return 1
      const [part] = plain.value(expression).parts
      if (part.kind === 'constant') return part.value
      throw shaderError(expression.line, 'a workgroup size must be constant')
    }
    const [x, y, z] = this.#shader.workgroupSize
    this.#workgroupSize = [whole(x), whole(y), whole(z)]
    const truth = (condition: Expression): boolean | undefined => {
      if (!this.#isKnown(condition)) return undefined
      const [part] = plain.value(condition).parts
      return part.kind === 'constant' ? part.value !== 0 : undefined
    }
    const functions = new Map(
      [...shader.functions].map(([name, one]): [string, FunctionDeclaration] => [
        name,
        { ...one, body: simplify(one.body, truth) },
      ]),
    )
    this.#withBarriers = functionsWithBarriers(functions)
    this.#source = { shader, functions }
    for (const [i, { name, type, line }] of buffers.entries())
      this.#global.set(name, memoryAt(addresses[i], plain.type(type, line)))
    for (const { name, type, space, line } of this.#shader.variables) {
      if (space === 'storage') continue
      this.#global.set(name, plain.array(plain.type(type, line)))
    }
    this.#workgroupBytes = this.scratchBytes
  }

  /** Tells whether a condition has names of the module's constants only. */
  #isKnown(expression: Expression): boolean {
    switch (expression.kind) {
      case 'name':
        return this.#global.has(expression.name)
      case 'unary':
        return this.#isKnown(expression.of)
      case 'binary':
        return this.#isKnown(expression.left) && this.#isKnown(expression.right)
      case 'number':
      case 'bool':
        return true
      default:
        return false
    }
  }

  #writer(lanes: 1 | typeof laneCount): Writer {
    return new Writer(
      {
        code: this.#code,
        lanes,
        findings: this.#findings,
        scratch: this.#scratch,
        scratchBase: this.#scratchBase,
        global: this.#global,
      },
      this.#source,
    )
  }

  readonly #scratch: Scratch = {
    take: (bytes) => {
      const at = this.scratchBytes
      this.scratchBytes += Math.ceil(bytes / vectorBytes) * vectorBytes
      return at
    },
  }

  write(): FunctionCode {
    const main = this.#source.functions.get('main')
    if (!main) throw shaderError(1, 'there is no function "main"')
    const code = this.#code
    code.loop(this.#count, 1, (at) => {
      const number = code.i32('i32.add', this.#first, at)
      const rest = code.i32('i32.div_u', number, this.#groupsX)
      const group = [
        code.i32('i32.rem_u', number, this.#groupsX),
        code.i32('i32.rem_u', rest, this.#groupsY),
        code.i32('i32.div_u', rest, this.#groupsY),
      ].map((local): Part => ({ kind: 'scalar', local }))
      if (this.#withBarriers.has('main')) this.#writeGroup(main, group)
      else this.#writeInvocations(main, group)
    })
    return code
  }

  get #invocations(): number {
    const [x, y, z] = this.#workgroupSize
    return x * y * z
  }

  /** True if four invocations are computed at once: not where each of them handles vectors. */
  get #isWide(): boolean {
    const { variables } = this.#shader
    const isVector = (type: Type): boolean =>
      type.kind === 'vector' || (type.kind === 'array' && isVector(type.of))
    const hasVectors = variables.some(({ name, space }) => {
      const place = this.#global.get(name)!
      return space === 'storage' && place.kind === 'memory' && isVector(place.type)
    })
    return this.#invocations % laneCount === 0 && !hasVectors
  }

  #writeInvocations(main: FunctionDeclaration, group: readonly Part[]): void {
    const code = this.#code
    const one = (at: Part) => {
      const writer = this.#writer(1)
      writer.invocation = at
      code.block((end) =>
        writer.function(() => {
          this.#bindParameters(writer, main, group)
          writer.body(main.body, end)
        }),
      )
    }
    const total = code.i32Const(this.#invocations)
    if (!this.#isWide) {
      code.loop(total, 1, (local) => one({ kind: 'scalar', local }))
      return
    }
    code.loop(total, laneCount, (local) => {
      const base = { kind: 'scalar', local, multiple: laneCount } as const
      code.block((done) => {
        let needsOneByOne = false
        code.block((apart) => {
          const writer = this.#writer(laneCount)
          writer.invocation = { kind: 'linear', base, stride: 1 }
          writer.bail = apart
          writer.function(() => {
            this.#bindParameters(writer, main, group)
            writer.body(main.body, done)
          })
          needsOneByOne = writer.hasBailed
          if (needsOneByOne) code.branch(done)
        })
        if (!needsOneByOne) return
        const last = code.i32Const(laneCount)
        code.loop(last, 1, (lane) =>
          one({ kind: 'scalar', local: code.i32('i32.add', local, lane) }),
        )
      })
    })
  }

  #writeGroup(main: FunctionDeclaration, group: readonly Part[]): void {
    const writer = this.#writer(1)
    const count = this.#invocations
    const groups = new GroupWriter(
      writer,
      this.#source.functions,
      this.#withBarriers,
      this.#scratch,
      count,
    )
    if (this.#workgroupBytes > 0)
      this.#code.clear(this.#scratchBase, this.#code.i32Const(this.#workgroupBytes))
    this.#code.block((end) =>
      writer.function(() => {
        this.#bindParameters(writer, main, group)
        groups.body(main.body, end)
      }),
    )
  }

  /** The builtin values of an invocation, computed where they are read. */
  #bindParameters(writer: Writer, main: FunctionDeclaration, group: readonly Part[]): void {
    for (const { name, builtin } of main.parameters)
      writer.bind(name, {
        kind: 'computed',
        type: typeOfBuiltin(builtin),
        value: () => this.#builtin(writer, builtin, group),
      })
  }

  #builtin(writer: Writer, builtin: string | undefined, group: readonly Part[]): Value {
    const { arithmetic, invocation } = writer
    const [x, y] = this.#workgroupSize
    const of = (operator: string, a: Part, b: Part) => arithmetic.binary(operator, 'u32', a, b)
    const local = (): Part[] => {
      if (x === this.#invocations) return [invocation, constant(0), constant(0)]
      const rest = of('/', invocation, constant(x))
      return [
        of('%', invocation, constant(x)),
        of('%', rest, constant(y)),
        of('/', rest, constant(y)),
      ]
    }
    const type = vectorOf('u32', 3)
    switch (builtin) {
      case 'local_invocation_index':
        return { type: scalar('u32'), parts: [invocation] }
      case 'workgroup_id':
        return { type, parts: group }
      case 'local_invocation_id':
        return { type, parts: local() }
      case 'global_invocation_id':
        return {
          type,
          parts: local().map((part, i) =>
            of('+', of('*', group[i], constant(this.#workgroupSize[i])), part),
          ),
        }
    }
    throw shaderError(1, `the builtin value "${builtin}" is not supported`)
  }
}

const typeOfBuiltin = (name: string | undefined): Type =>
  name === 'local_invocation_index' ? scalar('u32') : vectorOf('u32', 3)

const memoryAt = (local: Local<'i32'>, type: Type): Place => ({
  kind: 'memory',
  type,
  // Buffers begin at whole vectors.
  address: { kind: 'scalar', local, multiple: vectorBytes },
  wordBytes: 4,
})

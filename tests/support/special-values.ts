import { type CompileOptions, compile } from '../../src/graph/compile/compile.ts'
import * as elementwise from '../../src/graph/functions/elementwise.ts'
import text from '../golden/special.json?raw'
import { edgeCalls } from './edge-calls.ts'
import { elementwiseCalls } from './elementwise-calls.ts'
import { type GoldenTensor, valuesOf } from './golden.ts'
import type { Call, CallCase } from './golden-call.ts'
import { programOfCall } from './golden-call.ts'

type Comparison = 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge'

/** What the cases of tests/golden/special.py call, by name. */
const calls: Record<string, Call> = {
  ...edgeCalls,
  ...elementwiseCalls,
  sub: ({ a, b }) => a.sub(b),
  powOf: ({ x }, { base }) => elementwise.pow(base, x),
  lessItself: ({ x }) => x.sub(x),
  overItself: ({ x }) => x.div(x),
  timesZero: ({ x }) => x.mul(0),
  plusZero: ({ x }) => x.add(0),
  smallerThanItself: ({ x }) => elementwise.minimum(x, x),
  ofItself: ({ x }, { name }) => x[name as Comparison](x),
  ofZero: ({ x }, { name }) => x[name as Comparison](0),
  cleaned: ({ x }) => elementwise.where(x.ne(x), 0, x),
  maskedLog: ({ x }) => elementwise.where(x.gt(0), x.log(), 0),
  where: ({ a, b }) => elementwise.where(a, b, 1),
}

interface SpecialCase extends CallCase {
  /** PyTorch's float64 results, of those where they differ. */
  readonly doubles: Record<string, GoldenTensor>
}

const file = JSON.parse(text) as {
  tensors: Record<string, GoldenTensor>
  cases: (Omit<SpecialCase, 'inputs'> & { inputs: Record<string, string> })[]
}

const specialCases: readonly SpecialCase[] = file.cases.map((golden) => ({
  ...golden,
  inputs: Object.fromEntries(
    Object.entries(golden.inputs).map(([name, of]) => [name, file.tensors[of]]),
  ),
}))

const smallestNormal = 2 ** -126
const isSubnormal = (value: number) => value !== 0 && Math.abs(value) < smallestNormal

/** Whether `got` is PyTorch's number, up to roundings; a zero of either sign. */
const isSame = (got: number, expected: number): boolean =>
  Number.isFinite(expected)
    ? Math.abs(got - expected) <= 4e-6 * Math.abs(expected) + 5e-7
    : Object.is(got, expected)

/** Whether `got` is one of PyTorch's numbers, or between two. */
const isAllowed = (got: number, expected: readonly number[]): boolean =>
  expected.some((one) => isSame(got, one)) ||
  (expected.some((one) => one < got) && expected.some((one) => one > got))

/**
 * For each element, whose results it may have: its own, and where inputs are subnormal those of elements with zero or the smallest normal
 * number in their place. Adapters may take subnormal numbers for zeros, and lavapipe's logarithm takes them for larger ones.
 */
function allowedElements({ inputs }: CallCase): (at: number) => readonly number[] {
  const columns = Object.values(inputs).map((tensor) => Array.from(valuesOf(tensor)))
  const [first] = columns
  if (!columns.every(({ length }) => length === first.length)) return (at) => [at]
  return (at) => {
    if (!columns.some((column) => isSubnormal(column[at]))) return [at]
    const areEqual = (value: number, other: number) =>
      Object.is(value, other) ||
      (isSubnormal(value) && (other === 0 || other === Math.sign(value) * smallestNormal))
    return first.flatMap((_, other) =>
      columns.every((column) => areEqual(column[at], column[other])) ? [other] : [],
    )
  }
}

function problemsOf(golden: SpecialCase, name: string, got: ArrayLike<number>): string[] {
  const expected = Array.from(valuesOf(golden.outputs[name]))
  const doubles = golden.doubles[name] ? valuesOf(golden.doubles[name]) : expected
  if (got.length !== expected.length)
    return [`${golden.name}: ${got.length} elements of ${name}, PyTorch has ${expected.length}`]
  const allowed = allowedElements(golden)
  const given = (at: number) =>
    Object.entries(golden.inputs)
      .map(([input, tensor]) => `${input} ${String(valuesOf(tensor)[at])}`)
      .join(', ')
  return expected.flatMap((value, at) =>
    isAllowed(
      got[at],
      allowed(at).flatMap((other) => [expected[other], doubles[other]]),
    )
      ? []
      : [`${golden.name}: ${name}[${at}] of ${given(at)}: got ${got[at]}, PyTorch has ${value}`],
  )
}

/** Where results or gradients of any case are not PyTorch's. All cases are one program. */
export async function specialProblems(where: CompileOptions): Promise<string[]> {
  const programs = specialCases.map((golden) => programOfCall(golden, calls))
  const renamed = <T>(of: (at: number) => Record<string, T>): Record<string, T> =>
    Object.fromEntries(
      specialCases.flatMap((_, at) =>
        Object.entries(of(at)).map(([name, value]) => [`${at} ${name}`, value]),
      ),
    )
  const program = await compile(
    (traced) =>
      renamed((at) => {
        const own = Object.keys(programs[at].types).map((name) => [name, traced[`${at} ${name}`]])
        return programs[at].fn(Object.fromEntries(own))
      }),
    renamed((at) => programs[at].types),
    where,
  )
  const got = await program.run(renamed((at) => programs[at].data))
  program.destroy()
  return specialCases.flatMap((golden, at) =>
    Object.keys(golden.outputs).flatMap((name) => problemsOf(golden, name, got[`${at} ${name}`])),
  )
}

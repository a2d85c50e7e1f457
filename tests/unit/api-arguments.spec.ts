import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import {
  destroyProcessGroup,
  initProcessGroup,
  isInitialized,
} from '../../src/entries/distributed.ts'
import { compile, ones, setDefaultDevice, Tensor, tensorType } from '../../src/entries/index.ts'
import { Parameter } from '../../src/entries/nn.ts'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { countElements, type Shape } from '../../src/util/shape.ts'
import {
  type Callable,
  call,
  called,
  exported,
  leftOut,
  type Make,
  makesGroup,
  namesWithArguments,
  otherArguments,
  tensorArguments,
  withoutRight,
} from '../support/api-arguments.ts'
import {
  type Attempt,
  attemptsOf,
  complaint,
  complaintOf,
  isPromise,
  judgeOf,
} from '../support/api-attempts.ts'
import { ofOtherRealm } from '../support/other-realm.ts'
import { parameterName, unnamedArguments } from '../support/parameter-names.ts'

const traced: Make = (shape: Shape, dtype) => ones(shape, dtype)
const stored: Make = (shape) => new Parameter(shape, new Float32Array(countElements(shape)))

const attemptsFor = (name: string, value: Callable): Attempt[] => {
  const right = tensorArguments(name, stored) ?? otherArguments(name)
  return attemptsOf(name, Math.max(right.length, value.length))
}

beforeEach(() => {
  // No network.
  vi.stubGlobal('fetch', async () => new Response('[]'))
  setDefaultDevice('reference')
})
afterEach(() => {
  vi.unstubAllGlobals()
  setDefaultDevice(null)
  if (isInitialized()) destroyProcessGroup()
})

/** There is a group of one, unless the call is to make it. */
async function prepareGroup(name: string): Promise<void> {
  const isNeeded = !makesGroup.includes(name)
  if (isNeeded && !isInitialized())
    await initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
  if (!isNeeded && isInitialized()) destroyProcessGroup()
}

test('the tables of exports name only exports', () => {
  const names = [
    ...Object.keys({ ...leftOut, ...withoutRight }),
    ...makesGroup,
    ...namesWithArguments,
  ]
  expect(names.filter((name) => !exported.some(([known]) => known === name))).toEqual([])
})

test('every export that takes arguments is in a table of them', () => {
  const known = new Set([...namesWithArguments, ...Object.keys(withoutRight)])
  const others = called.filter(
    ([name, value]) =>
      parameterName(value, 0) !== undefined &&
      ![name, name.replace(/^distributed\./, '')].some((one) => known.has(one)),
  )
  expect(
    others.map(([name]) => name),
    'add each to a table of tests/support/api-arguments.ts',
  ).toEqual([])
})

test('the table of unnamed arguments names only arguments', () => {
  const known = called.flatMap(([name, value]) =>
    [0, 1, 2].map((at) => `${name} ${parameterName(value, at)}`),
  )
  expect(
    Object.values(unnamedArguments)
      .flat()
      .filter((one) => !known.includes(one)),
  ).toEqual([])
})

const others = called.filter(([name]) => tensorArguments(name, stored) === undefined)

test.each(others.filter(([name]) => !Object.hasOwn(withoutRight, name)))(
  '%s takes right arguments',
  async (name, value) => {
    await prepareGroup(name)
    await call(value, otherArguments(name))
  },
)

/** What a call with right arguments answers; some need more than these. */
async function answerOf([name, value]: (typeof called)[number], change: (arg: unknown) => unknown) {
  await prepareGroup(name)
  const trace = new Trace()
  const args = withTrace(trace, () => tensorArguments(name, traced))
  try {
    const given = (args ?? otherArguments(name)).map(change)
    await (args ? withTrace(trace, () => void call(value, given)) : call(value, given))
    return 'right'
  } catch (error) {
    return `${name}: ${error}`
  }
}

test('arrays, maps and objects of another realm are answered as those of this one', async () => {
  for (const one of called) {
    if (Object.hasOwn(withoutRight, one[0]) || makesGroup.includes(one[0])) continue
    const answer = await answerOf(one, ofOtherRealm)
    if (answer !== 'right') expect(answer).toBe(await answerOf(one, (arg) => arg))
  }
})

test.each(called)(
  '%s answers wrong arguments with an error of the library that names them',
  async (name, value) => {
    const complaints: (string | undefined)[] = []
    const waiting: Promise<string | undefined>[] = []
    await prepareGroup(name)
    const isOfTensors = tensorArguments(name, stored) !== undefined
    const judge = isOfTensors
      ? ({ what }: Attempt, error: unknown) => complaint(what, error)
      : judgeOf(name, value)
    for (const attempt of attemptsFor(name, value)) {
      await prepareGroup(name)
      const args = attempt.change(tensorArguments(name, stored) ?? otherArguments(name))
      try {
        const result = call(value, args)
        if (!isPromise(result)) continue
        waiting.push(complaintOf(attempt.what, result, (error) => judge(attempt, error)))
        if (makesGroup.includes(name)) await waiting.at(-1)
      } catch (error) {
        complaints.push(judge(attempt, error))
      }
    }
    complaints.push(...(await Promise.all(waiting)))
    expect(complaints.filter(Boolean)).toEqual([])
  },
)

const ofTensors = called.filter(([name]) => tensorArguments(name, stored) !== undefined)

/** The tensors in what a function returned. */
const tensorsIn = (result: unknown): Tensor[] =>
  result instanceof Tensor
    ? [result]
    : typeof result === 'object' && result !== null && !(result instanceof Parameter)
      ? Object.values(result).filter((one) => one instanceof Tensor)
      : []

const runInputs = { x: Float32Array.of(1, 2, 3, 4) }

const compileCalls = (
  name: string,
  value: Callable,
  attempts: readonly Attempt[],
  judge: (attempt: Attempt, error: unknown) => string | undefined = judgeOf(name, value),
) => {
  const complaints: (string | undefined)[] = []
  const passed: Attempt[] = []
  const program = compile(
    ({ x }) => {
      const outputs: Record<string, Tensor> = { x: x.exp() }
      for (const attempt of attempts) {
        try {
          const args = attempt.change(tensorArguments(name, traced) ?? [])
          for (const y of tensorsIn(call(value, args)))
            outputs[`y${Object.keys(outputs).length}`] = y
          passed.push(attempt)
        } catch (error) {
          complaints.push(judge(attempt, error))
        }
      }
      return outputs
    },
    { x: tensorType([2, 2]) },
    { device: 'reference' },
  )
  return { complaints, passed, program }
}

const runOf = async (program: ReturnType<typeof compileCalls>['program']) =>
  (await program).run(runInputs)

test.each(ofTensors.filter(([name]) => !Object.hasOwn(withoutRight, name)))(
  '%s takes the right arguments that the wrong ones stand among',
  async (name, value) => {
    const right: Attempt = { what: name, change: (args) => args }
    const { complaints, program } = compileCalls(name, value, [right], () => 'refused')
    expect(complaints).toEqual([])
    await runOf(program)
  },
)

test.each(ofTensors)('%s does so in a traced function', async (name, value) => {
  const { complaints, passed, program } = compileCalls(name, value, attemptsFor(name, value))
  // One call that compiling or running refuses hides the others.
  const isRefused = await runOf(program).then(
    () => false,
    () => true,
  )
  if (isRefused) {
    for (const attempt of passed) {
      const alone = compileCalls(name, value, [attempt])
      complaints.push(await complaintOf(attempt.what, runOf(alone.program)))
    }
  }
  expect(complaints.filter(Boolean)).toEqual([])
})

import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { compile, ones, Parameter, TabringError, Tensor, tensorType } from '../../src/index.ts'
import { countElements, type Shape } from '../../src/util/shape.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'
import {
  type Callable,
  call,
  called,
  exported,
  leftOut,
  type Make,
  namesWithArguments,
  otherArguments,
  tensorArguments,
  wrongValues,
} from '../support/api-arguments.ts'

/** A wrong value in the place of an argument that is right. */
interface Attempt {
  readonly what: string
  readonly change: (args: unknown[]) => unknown[]
}

const seed = 20_261_127

const stored: Make = (shape) => new Parameter(shape, new Float32Array(countElements(shape)))

const put = (args: unknown[], at: number, value: unknown): unknown[] =>
  Array.from({ length: Math.max(args.length, at + 1) }, (_, i) => (i === at ? value : args[i]))

/** Each value in each of the first places, and some of all places at once. */
function attemptsOf(name: string, value: Callable): Attempt[] {
  const taken = (tensorArguments(name, stored) ?? otherArguments(name)).length
  const positions = [0, 1, 2].slice(0, Math.max(1, taken, value.length))
  const single = positions.flatMap((at) =>
    wrongValues.map(([value, make]) => ({
      what: `${name}, argument ${at + 1}: ${value}`,
      change: (args: unknown[]) => put(args, at, make()),
    })),
  )
  const own = [...name].reduce((sum, letter) => 31 * sum + letter.charCodeAt(0), seed)
  const random = seededRandom(own)
  const several = Array.from({ length: 8 }, () => {
    const chosen = positions.map(() => wrongValues[Math.floor(random() * wrongValues.length)])
    return {
      what: `${name}(${chosen.map(([value]) => value).join(', ')})`,
      change: () => chosen.map(([, make]) => make()),
    }
  })
  return [...single, ...several]
}

/** `where: what is wrong. What to do.` */
const form = /: .+\. \S/s

/** Of a whole error, whatever it quotes. */
const mostChars = 600

/** What is wrong with an error; undefined for one of the library. */
function complaint(what: string, error: unknown): string | undefined {
  if (!(error instanceof Error)) return `${what}: threw what is no error`
  if (!(error instanceof TabringError)) return `${what}: ${error.stack ?? error}`
  if (error.message.length > mostChars)
    return `${what}: ${error.message.length} characters: ${error.message.slice(0, mostChars)}…`
  return form.test(error.message) ? undefined : `${what}: a text without advice: ${error.message}`
}

const patience = 10_000

/** Whether it settles; a promise of the library that waits for ever would end the test without its name. */
async function complaintOf(
  what: string,
  result: PromiseLike<unknown>,
): Promise<string | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(resolve, patience, `${what}: the promise does not settle`)
  })
  const settled = Promise.resolve(result).then(
    () => undefined,
    (error) => complaint(what, error),
  )
  return Promise.race([settled, late]).finally(() => clearTimeout(timer))
}

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'

beforeEach(() => {
  // No network, and an answer that nothing tries again for.
  vi.stubGlobal('fetch', async () => new Response(null, { status: 404 }))
})
afterEach(() => {
  vi.unstubAllGlobals()
})

test('exports that are left out, and those with arguments, are exports', () => {
  const names = [...Object.keys(leftOut), ...namesWithArguments]
  expect(names.filter((name) => !exported.some(([known]) => known === name))).toEqual([])
})

test.each(called)(
  '%s answers wrong arguments with an error of the library',
  async (name, value) => {
    const complaints: (string | undefined)[] = []
    const waiting: Promise<string | undefined>[] = []
    for (const { what, change } of attemptsOf(name, value)) {
      const args = change(tensorArguments(name, stored) ?? otherArguments(name))
      try {
        const result = call(value, args)
        if (isPromise(result)) waiting.push(complaintOf(what, result))
      } catch (error) {
        complaints.push(complaint(what, error))
      }
    }
    complaints.push(...(await Promise.all(waiting)))
    expect(complaints.filter(Boolean)).toEqual([])
  },
)

const traced: Make = (shape: Shape, dtype) => ones(shape, dtype)
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
  judge = complaint,
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
          complaints.push(judge(attempt.what, error))
        }
      }
      return outputs
    },
    { x: tensorType([2, 2]) },
    { device: 'cpu' },
  )
  return { complaints, passed, program }
}

const runOf = async (program: ReturnType<typeof compileCalls>['program']) =>
  (await program).run(runInputs)

test.each(ofTensors)(
  '%s takes the right arguments that the wrong ones stand among',
  async (name, value) => {
    const right: Attempt = { what: name, change: (args) => args }
    const { complaints, program } = compileCalls(name, value, [right], () => 'refused')
    expect(complaints).toEqual([])
    await runOf(program)
  },
)

test.each(ofTensors)('%s does so in a traced function', async (name, value) => {
  const { complaints, passed, program } = compileCalls(name, value, attemptsOf(name, value))
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

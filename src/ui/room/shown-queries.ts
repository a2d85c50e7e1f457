import * as v from 'valibot'
import { givenData, type TrainConfig } from '../../trainer/settings/config.ts'

/** Query of an onlooker's view. */
export interface Ask {
  readonly name: string
  readonly input: unknown
}

/** Queries that a rank answers to onlookers, by name: those of the demos' views, with inputs that bound the time they take and the programs they need. */

const whole = (min: number, max: number) =>
  v.pipe(v.number(), v.safeInteger(), v.minValue(min), v.maxValue(max))
const nothing = v.null()
const prompt = v.pipe(v.string(), v.maxLength(256))

const inputs: Readonly<Record<string, v.GenericSchema>> = {
  // Each side has a program.
  boundary: v.strictObject({ side: v.literal(64) }),
  hidden: v.strictObject({ side: v.literal(20) }),
  picture: v.strictObject({ width: whole(1, 512) }),
  filters: nothing,
  'model file': nothing,
  classify: v.pipe(v.array(v.pipe(v.number(), v.minValue(0), v.maxValue(1))), v.length(28 * 28)),
  probabilities: v.strictObject({ prompt }),
  attention: v.strictObject({ prompt }),
  sample: v.strictObject({
    prompt,
    length: whole(1, 512),
    temperature: v.pipe(v.number(), v.minValue(0), v.maxValue(2)),
    seed: whole(0, Number.MAX_SAFE_INTEGER),
  }),
}
/** Answers have samples of the data in them. */
const ofData: Readonly<Record<string, v.GenericSchema>> = {
  points: nothing,
  original: nothing,
  mistakes: nothing,
  vocabulary: nothing,
}

/** Returns why a rank answers no onlooker this; undefined where it does. */
export function refusalToShow(
  { name, input }: Ask,
  config: TrainConfig | null,
): string | undefined {
  const isOfData = Object.hasOwn(ofData, name)
  const schema = isOfData ? ofData[name] : Object.hasOwn(inputs, name) ? inputs[name] : undefined
  if (!schema || !v.is(schema, input ?? null))
    return `onlookers: a rank does not answer them ${String(name).slice(0, 40)} with this input. Take part to ask it.`
  if (isOfData && config?.data === givenData)
    return 'This data was given by a person, and is not sent to onlookers. Take part to see it.'
  return undefined
}

import { ShapeError } from '../../util/errors.ts'
import { formatShape, tensorType } from '../../util/shape.ts'
import {
  type Case,
  defineOp,
  type HostArray,
  type KernelLimits,
  type Lowering,
  type Op,
  type OpCall,
  type ScalarSlot,
  type Tolerance,
  type Variant,
} from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, updates } from '../shader.ts'
import { checkSlice, isAligned, type Slice } from './slice.ts'
import frame from './update.wgsl?raw'

/** Where a setting of a rule comes from in each step: a step scalar, or a number that an earlier kernel left in `control`. */
export type SettingSource = ScalarSlot | { readonly control: number }

export interface UpdateAttrs extends Slice {
  readonly settings: Readonly<Record<string, SettingSource>>
}

/**
 * An update rule over flat tensors, in place and element by element: optimizers, averages, accumulation.
 *
 * The op's inputs are `tensors` in order, then, if the caller has one, `control`: [0] is a factor on the tensor `scaled`, a [1] above 0
 * leaves everything as it is, further entries are settings.
 */
export interface UpdateRule {
  readonly name: string
  readonly tensors: readonly { readonly name: string; readonly isUpdated: boolean }[]
  /** The tensor that control's factor multiplies as it is read, by `scaled(i, s)`. */
  readonly scaled?: string
  readonly settings: readonly string[]
  /** WGSL of `fn update(i: u32, s: Settings)` on elements of type VALUE, whose bits are WORDS; it may use every tensor by its name. */
  readonly body: string
  /** The rule on one element: changes `x`, one entry a tensor; `scaled` is multiplied already. */
  reference(x: number[], settings: Readonly<Record<string, number>>): void
  readonly tolerance: Tolerance
  /** Settings of the sample cases. */
  readonly sample: Readonly<Record<string, number>>
  /** Tensors that are never negative. */
  readonly nonNegative?: readonly string[]
}

type Element = 'f32' | 'vec4<f32>'

const threads = 64

function lower(
  rule: UpdateRule,
  { attrs, inputs }: OpCall<UpdateAttrs>,
  element: Element,
  perThread: number,
): Lowering {
  if (attrs.length === 0) return { dispatches: [] }
  const width = element === 'f32' ? 1 : 4
  const groups = linearGroups(ceilDiv(attrs.length / width, threads * perThread))
  const hasControl = inputs.length > rule.tensors.length
  const controlLength = hasControl ? inputs[rule.tensors.length].shape[0] : 0
  const slots = Object.values(attrs.settings).flatMap((source) =>
    'slot' in source ? [source.slot] : [],
  )
  const fields = rule.settings.map((name) => {
    const source = attrs.settings[name]
    return {
      name,
      from: 'slot' in source ? `scalars[${source.slot}u]` : `control[${source.control}u]`,
    }
  })
  if (hasControl) fields.push({ name: 'control_factor', from: 'control[0u]' })
  if (fields.length === 0) fields.push({ name: 'unused', from: '0.0' })
  const body = [
    `alias VALUE = ${element};`,
    `alias WORDS = ${element.replace('f32', 'u32')};`,
    `struct Settings {\n${fields.map(({ name }) => `  ${snake(name)}: f32,`).join('\n')}\n}`,
    `fn settings() -> Settings {\n  return Settings(${fields.map(({ from }) => from).join(', ')});\n}`,
    `fn skips() -> bool {\n  return ${hasControl ? 'control[1u] > 0.0' : 'false'};\n}`,
    rule.scaled
      ? `fn scaled(i: u32, s: Settings) -> VALUE {\n  return ${rule.scaled}[i]${hasControl ? ' * s.control_factor' : ''};\n}`
      : '',
    rule.body,
    frame,
  ]
  return {
    dispatches: [
      dispatch({
        label: rule.name,
        bindings: [
          ...rule.tensors.map(({ name, isUpdated }, i) => ({
            ...(isUpdated ? updates : reads)(name, { in: i }, element),
            count: Math.floor(inputs[i].shape[0] / width),
          })),
          ...(hasControl
            ? [{ ...reads('control', { in: rule.tensors.length }), count: controlLength }]
            : []),
          ...(slots.length > 0
            ? [{ ...reads('scalars', 'scalars'), count: 1 + Math.max(...slots) }]
            : []),
        ],
        constants: {
          START: attrs.start / width,
          COUNT: attrs.length / width,
          THREADS: threads,
          PER_THREAD: perThread,
          GROUPS_X: groups[0],
        },
        body: body.filter(Boolean).join('\n'),
        groups,
      }),
    ],
  }
}

const snake = (name: string): string =>
  name.replace(/[A-Z0-9]/g, (letter) =>
    /[0-9]/.test(letter) ? letter : `_${letter.toLowerCase()}`,
  )

/**
 * Elements that one thread of `strip` takes. A software adapter reads settings again in each thread, element by element, which
 * costs as much as a tensor's element: one AdamW step of 203,264 took 2.4 ms so, 3.4 ms with the settings baked in and four
 * elements a thread, 7.6 ms with four elements and settings (SwiftShader, 2 cores, best of 7).
 */
const strip = 64

const isStrip = (slice: Slice): boolean => isAligned(slice) && slice.length >= threads * strip

function variantsOf(rule: UpdateRule): [Variant<UpdateAttrs>, ...Variant<UpdateAttrs>[]] {
  return [
    { name: 'naive', lower: (call) => lower(rule, call, 'f32', 1) },
    {
      name: 'vec4',
      when: ({ attrs }) => isAligned(attrs),
      lower: (call) => lower(rule, call, 'vec4<f32>', 1),
    },
    {
      name: 'strip',
      when: ({ attrs }) => isStrip(attrs),
      lower: (call) => lower(rule, call, 'vec4<f32>', strip / 4),
    },
  ]
}

function preferred({ attrs }: OpCall<UpdateAttrs>, { isSoftware }: KernelLimits): string {
  if (isSoftware && isStrip(attrs)) return 'strip'
  return isAligned(attrs) ? 'vec4' : 'naive'
}

const cases: readonly (readonly [
  name: string,
  n: number,
  slice: Slice,
  more?: { fill?: Case['fill']; hasControl?: boolean },
])[] = [
  ['one element', 1, { start: 0, length: 1 }],
  ['whole, not a multiple', 1027, { start: 0, length: 1027 }],
  ['aligned slice, odd tensor', 103, { start: 24, length: 40 }],
  ['aligned, several strips', 9003, { start: 4, length: 8996 }],
  ['odd slice', 701, { start: 13, length: 670 }],
  ['empty slice', 16, { start: 8, length: 0 }],
  ['no elements', 0, { start: 0, length: 0 }],
  ['huge', 260, { start: 0, length: 260 }, { fill: 'huge' }],
  ['ties', 130, { start: 0, length: 130 }, { fill: 'ties' }],
  ['with control', 132, { start: 0, length: 132 }, { hasControl: true }],
  ['with control, huge', 132, { start: 0, length: 132 }, { hasControl: true, fill: 'huge' }],
  ['with control, ties', 132, { start: 0, length: 132 }, { hasControl: true, fill: 'ties' }],
]

/** The op of an update rule. */
export function defineUpdate(
  rule: UpdateRule,
  extra: readonly Case<UpdateAttrs>[] = [],
): Op<UpdateAttrs> {
  const names = rule.tensors.map(({ name }) => name)
  const scaledAt = rule.scaled ? names.indexOf(rule.scaled) : -1
  return defineOp<UpdateAttrs>({
    name: rule.name,
    infer(inputs, attrs) {
      checkSlice(rule.name, names, inputs, attrs)
      const missing = rule.settings.find((name) => !(name in attrs.settings))
      const control = inputs[names.length]
      if (missing || (control && control.shape.length !== 1)) {
        throw new ShapeError(
          'shape.mismatch',
          `${rule.name}: expected the settings ${rule.settings.join(', ')} and a flat control, got ${Object.keys(attrs.settings).join(', ')} and ${control ? formatShape(control.shape) : 'none'}. Pass a slot for each setting.`,
        )
      }
      return []
    },
    updates: rule.tensors.flatMap(({ isUpdated }, i) => (isUpdated ? [i] : [])),
    variants: variantsOf(rule),
    preferred,
    reference(inputs, { attrs }, scalars) {
      const control = inputs.length > names.length ? inputs[names.length] : undefined
      if (control && control[1] > 0) return []
      const settings = Object.fromEntries(
        rule.settings.map((name) => {
          const source = attrs.settings[name]
          return [name, 'slot' in source ? scalars[source.slot] : control![source.control]]
        }),
      )
      const tensors = inputs.slice(0, names.length) as HostArray[]
      const x = new Array<number>(tensors.length)
      for (let i = attrs.start; i < attrs.start + attrs.length; i++) {
        for (let t = 0; t < x.length; t++) x[t] = tensors[t][i]
        if (control && scaledAt >= 0) x[scaledAt] *= control[0]
        rule.reference(x, settings)
        for (let t = 0; t < x.length; t++) if (rule.tensors[t].isUpdated) tensors[t][i] = x[t]
      }
      return []
    },
    tolerance: rule.tolerance,
    cases: [
      ...cases.map(([name, n, slice, { fill, hasControl } = {}]): Case<UpdateAttrs> => {
        const settings = Object.fromEntries(rule.settings.map((key, i) => [key, { slot: 1 + i }]))
        return {
          name,
          inputs: [...names.map(() => tensorType([n])), ...(hasControl ? [tensorType([2])] : [])],
          attrs: { settings, ...slice },
          scalars: [0, ...rule.settings.map((key) => rule.sample[key])],
          fill,
          nonNegative: rule.nonNegative?.map((name) => names.indexOf(name)),
        }
      }),
      ...extra,
    ],
  })
}

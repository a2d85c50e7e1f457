import type { ConstantAttrs } from '../../kernels/constant/constant.ts'
import type { IntegerMapAttrs } from '../../kernels/integers/integer-map.ts'
import type { MapAttrs } from '../../kernels/map/map.ts'
import { comparisons } from '../../kernels/scalar/arithmetic.ts'
import type { Step, StepArgument } from '../../kernels/steps.ts'
import type { GraphValue } from '../trace/value.ts'

/** Truths, numbers, or constants of 0 and 1, which go with either. */
type Kind = 'truths' | 'either' | 'numbers'

/** Ops that leave elements as they are. */
const moves: ReadonlySet<string> = new Set(['view', 'cat', 'triangle'])

const together = (kinds: readonly Kind[]): Kind => {
  if (kinds.includes('numbers')) return 'numbers'
  return kinds.includes('truths') ? 'truths' : 'either'
}

const ofNumber = (value: number): Kind => (value === 0 || value === 1 ? 'either' : 'numbers')

function kindOfStep({ fn, args }: Step, kindOf: (argument: StepArgument) => Kind): Kind {
  if (fn in comparisons) return 'truths'
  const kinds = args.map(kindOf)
  switch (fn) {
    case 'mul':
    case 'minimum':
    case 'maximum':
      return together(kinds)
    case 'where':
      return together(kinds.slice(1))
    case 'sub': {
      const [one, truth] = args
      return 'constant' in one && one.constant === 1 ? kindOf(truth) : 'numbers'
    }
    default:
      return 'numbers'
  }
}

function kindOfValue({ node }: GraphValue): Kind {
  if (!node) return 'numbers'
  const { op, inputs, attrs } = node
  if (op.name === 'constant') {
    const { start, step } = attrs as ConstantAttrs
    return step === 0 ? ofNumber(start) : 'numbers'
  }
  if (op.name === 'map') {
    const kinds: Kind[] = []
    for (const step of (attrs as MapAttrs).steps) {
      const kindOf = (argument: StepArgument) => {
        if ('constant' in argument) return ofNumber(argument.constant)
        return 'step' in argument ? kinds[argument.step] : kindOfValue(inputs[argument.input])
      }
      kinds.push(kindOfStep(step, kindOf))
    }
    return kinds.at(-1) ?? kindOfValue(inputs[0])
  }
  if (op.name === 'integerMap' && (attrs as IntegerMapAttrs).fn in comparisons) return 'truths'
  return op.isView || moves.has(op.name) ? together(inputs.map(kindOfValue)) : 'numbers'
}

/**
 * Returns whether a tensor holds truths as 1 and 0 because comparisons made it, where torch has tensors of bool: moved, joined, or combined by
 * `mul` (and), `minimum` (and), `maximum` (or), `1 - x` (not) and `where`.
 */
export const holdsTruths = (value: GraphValue): boolean => kindOfValue(value) === 'truths'

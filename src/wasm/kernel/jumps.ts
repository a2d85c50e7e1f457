import type { Statement } from '../wgsl/syntax.ts'

/** Tells whether a statement may return from its function. */
export const hasReturn = (one: Statement): boolean => {
  switch (one.kind) {
    case 'return':
      return true
    case 'if':
      return [...one.then, ...one.otherwise].some(hasReturn)
    case 'for':
    case 'block':
      return one.body.some(hasReturn)
    default:
      return false
  }
}

/** Tells whether it may jump out of itself. */
export const jumpsOut = (one: Statement, isInLoop = false): boolean => {
  switch (one.kind) {
    case 'return':
      return true
    case 'break':
    case 'continue':
      return !isInLoop
    case 'if':
      return [...one.then, ...one.otherwise].some((inner) => jumpsOut(inner, isInLoop))
    case 'for':
      return one.body.some((inner) => jumpsOut(inner, true))
    case 'block':
      return one.body.some((inner) => jumpsOut(inner, isInLoop))
    default:
      return false
  }
}

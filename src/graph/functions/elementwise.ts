import { elementwise, mustBeTensor, type Operand, Tensor } from '../trace/tensor.ts'

/**
 * Returns a + b. Elementwise functions are named as in torch; shapes broadcast by NumPy's rules. Functions of two operands accept a number
 * on either side.
 */

export const add = (a: Operand, b: Operand): Tensor => elementwise('add', { a, b })
export const sub = (a: Operand, b: Operand): Tensor => elementwise('sub', { a, b })
export const mul = (a: Operand, b: Operand): Tensor => elementwise('mul', { a, b })
export const div = (a: Operand, b: Operand): Tensor => elementwise('div', { a, b })
export const minimum = (a: Operand, b: Operand): Tensor => elementwise('minimum', { a, b })
export const maximum = (a: Operand, b: Operand): Tensor => elementwise('maximum', { a, b })

/**
 * Returns a to the power of `exponent`. numerics: NaN for a negative base and a fractional exponent, and for the gradient of the exponent of a
 * negative base.
 */
export const pow = (a: Operand, exponent: Operand): Tensor =>
  a instanceof Tensor ? a.pow(exponent) : elementwise('pow', { a, exponent })

/** Returns a where the condition (f32 or integer) is nonzero, otherwise b. The gradient goes to the selected one. */
export const where = (condition: Tensor, a: Operand, b: Operand): Tensor =>
  elementwise('where', { condition, a, b })

// --- comparisons: f32, 1 where it holds and 0 elsewhere; no gradient ---

export const eq = (a: Operand, b: Operand): Tensor => elementwise('eq', { a, b })
export const ne = (a: Operand, b: Operand): Tensor => elementwise('ne', { a, b })
export const lt = (a: Operand, b: Operand): Tensor => elementwise('lt', { a, b })
export const le = (a: Operand, b: Operand): Tensor => elementwise('le', { a, b })
export const gt = (a: Operand, b: Operand): Tensor => elementwise('gt', { a, b })
export const ge = (a: Operand, b: Operand): Tensor => elementwise('ge', { a, b })

// --- of one operand ---

export const neg = (x: Tensor): Tensor => elementwise('neg', { x })
export const exp = (x: Tensor): Tensor => elementwise('exp', { x })
export const log = (x: Tensor): Tensor => elementwise('log', { x })
export const sqrt = (x: Tensor): Tensor => elementwise('sqrt', { x })
export const rsqrt = (x: Tensor): Tensor => elementwise('rsqrt', { x })
export const square = (x: Tensor): Tensor => elementwise('square', { x })
export const abs = (x: Tensor): Tensor => elementwise('abs', { x })
export const sign = (x: Tensor): Tensor => elementwise('sign', { x })
export const floor = (x: Tensor): Tensor => elementwise('floor', { x })
export const erf = (x: Tensor): Tensor => elementwise('erf', { x })
export const clamp = (x: Tensor, min?: number, max?: number): Tensor =>
  mustBeTensor('clamp', { x }).clamp(min, max)

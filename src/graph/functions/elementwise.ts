import { elementwise, type Operand, Tensor } from '../trace/tensor.ts'

/**
 * Returns a + b. Elementwise functions are named as in torch; shapes broadcast by NumPy's rules. Functions of two operands accept a number
 * on either side.
 */

export const add = (a: Operand, b: Operand): Tensor => elementwise('add', a, b)
export const sub = (a: Operand, b: Operand): Tensor => elementwise('sub', a, b)
export const mul = (a: Operand, b: Operand): Tensor => elementwise('mul', a, b)
export const div = (a: Operand, b: Operand): Tensor => elementwise('div', a, b)
export const minimum = (a: Operand, b: Operand): Tensor => elementwise('minimum', a, b)
export const maximum = (a: Operand, b: Operand): Tensor => elementwise('maximum', a, b)

/**
 * Returns a to the power of b. numerics: NaN for a negative base and a fractional exponent, and for the gradient of the exponent of a
 * negative base.
 */
export const pow = (a: Operand, b: Operand): Tensor =>
  a instanceof Tensor ? a.pow(b) : elementwise('pow', a, b)

/** Returns a where the condition (f32 or integer) is nonzero, otherwise b. The gradient goes to the selected one. */
export const where = (condition: Tensor, a: Operand, b: Operand): Tensor =>
  elementwise('where', condition, a, b)

// --- comparisons: f32, 1 where it holds and 0 elsewhere; no gradient ---

export const eq = (a: Operand, b: Operand): Tensor => elementwise('eq', a, b)
export const ne = (a: Operand, b: Operand): Tensor => elementwise('ne', a, b)
export const lt = (a: Operand, b: Operand): Tensor => elementwise('lt', a, b)
export const le = (a: Operand, b: Operand): Tensor => elementwise('le', a, b)
export const gt = (a: Operand, b: Operand): Tensor => elementwise('gt', a, b)
export const ge = (a: Operand, b: Operand): Tensor => elementwise('ge', a, b)

// --- of one operand ---

export const neg = (x: Tensor): Tensor => x.neg()
export const exp = (x: Tensor): Tensor => x.exp()
export const log = (x: Tensor): Tensor => x.log()
export const sqrt = (x: Tensor): Tensor => x.sqrt()
export const rsqrt = (x: Tensor): Tensor => x.rsqrt()
export const square = (x: Tensor): Tensor => x.square()
export const abs = (x: Tensor): Tensor => x.abs()
export const sign = (x: Tensor): Tensor => x.sign()
export const floor = (x: Tensor): Tensor => x.floor()
export const erf = (x: Tensor): Tensor => x.erf()
export const clamp = (x: Tensor, min?: number, max?: number): Tensor => x.clamp(min, max)

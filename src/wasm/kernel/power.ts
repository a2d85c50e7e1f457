import type { Local } from '../assemble.ts'
import { type Arithmetic, isUniform, type Part, type Uniform } from './arithmetic.ts'

/** Terms of log(m) = 2 (s + s^3 / 3 + ...) with s = (m - 1) / (m + 1): the next one is below 2^-54. */
const logTerms = 11
/** Terms of exp(r) for |r| <= log(2) / 2, likewise. */
const expTerms = 14

/** a^b for a base that is not negative, computed in f64 and rounded once. numerics: within 1 ulp. NaN for a negative base. */
export function power(arithmetic: Arithmetic, a: Part, b: Part): Part {
  if (isUniform(a) && isUniform(b)) return one(arithmetic, a, b)
  const [x, y] = [arithmetic.vector('f32', a), arithmetic.vector('f32', b)]
  const words = [0, 1, 2, 3].map((lane) =>
    one(arithmetic, arithmetic.lane('f32', x, lane), arithmetic.lane('f32', y, lane)),
  )
  return { kind: 'vector', local: arithmetic.gather('f32', words) }
}

function one(arithmetic: Arithmetic, a: Uniform, b: Uniform): Uniform {
  const { code } = arithmetic
  const number = (value: number) => code.f64Const(value)
  const add = (x: Local, y: Local) => code.f64('f64.add', x, y)
  const subtract = (x: Local, y: Local) => code.f64('f64.sub', x, y)
  const multiply = (x: Local, y: Local) => code.f64('f64.mul', x, y)
  const [base, exponent] = [arithmetic.word('f32', a), arithmetic.word('f32', b)]
  const x = code.f64('f64.promote_f32', base)
  // x = 2^whole * m with m from 1/sqrt(2) to sqrt(2); every f32 is a normal f64.
  const bits = code.i64('i64.reinterpret_f64', x)
  const offset = code.i64('i64.reinterpret_f64', number(Math.SQRT1_2))
  const moved = code.i64('i64.sub', bits, offset)
  const shift = code.i64Const(52)
  const whole = code.i64('i64.shr_s', moved, shift)
  const m = code.f64(
    'f64.reinterpret_i64',
    code.i64('i64.sub', bits, code.i64('i64.shl', whole, shift)),
  )
  const s = code.f64('f64.div', subtract(m, number(1)), add(m, number(1)))
  const square = multiply(s, s)
  let series = number(1 / (2 * logTerms - 1))
  for (let n = logTerms - 2; n >= 0; n--)
    series = add(multiply(series, square), number(1 / (2 * n + 1)))
  const log = multiply(multiply(series, s), number(2 * Math.LOG2E))
  const log2 = add(code.f64('f64.convert_i64_s', whole), log)
  const product = multiply(log2, code.f64('f64.promote_f32', exponent))
  const within = code.f64('f64.max', code.f64('f64.min', product, number(300)), number(-300))
  const rounded = code.f64('f64.nearest', within)
  const r = multiply(subtract(within, rounded), number(Math.LN2))
  let y = number(1)
  for (let n = expTerms; n >= 1; n--) y = add(multiply(multiply(y, r), number(1 / n)), number(1))
  const scale = code.i64(
    'i64.shl',
    code.i64(
      'i64.extend_i32_s',
      code.i32('i32.trunc_sat_f32_s', code.f32('f32.demote_f64', add(rounded, number(1023)))),
    ),
    shift,
  )
  const power = code.f32('f32.demote_f64', multiply(y, code.f64('f64.reinterpret_i64', scale)))
  return { kind: 'scalar', local: edges(arithmetic, base, exponent, power) }
}

/** The results where the base or the exponent is 0, infinite or no number. */
function edges(
  arithmetic: Arithmetic,
  base: Local,
  exponent: Local,
  inside: Local<'f32'>,
): Local<'f32'> {
  const { code } = arithmetic
  const number = (value: number) => code.f32Const(value)
  const is = (name: 'eq' | 'lt' | 'ne' | 'gt', x: Local, y: Local) => code.i32(`f32.${name}`, x, y)
  const [none, unit, infinity] = [number(0), number(1), number(Number.POSITIVE_INFINITY)]
  const isUp = is('gt', exponent, none)
  let result = code.select(code.select(none, infinity, isUp), inside, is('eq', base, none))
  result = code.select(code.select(infinity, none, isUp), result, is('eq', base, infinity))
  const isNan = code.i32('i32.or', is('ne', base, base), is('ne', exponent, exponent))
  const isUnknown = code.i32('i32.or', isNan, is('lt', base, none))
  result = code.select(number(Number.NaN), result, isUnknown)
  const isOne = code.i32('i32.or', is('eq', exponent, none), is('eq', base, unit))
  return code.select(unit, result, isOne)
}

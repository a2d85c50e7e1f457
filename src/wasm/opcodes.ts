/** Encodes a number that is not negative, as LEB128. */
export function unsigned(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)]
}

/** Encodes a whole number of 32 bits, as LEB128. */
export function signed(value: number): number[] {
  const low = value & 0x7f
  const rest = value >> 7
  const isLast = rest === (low & 0x40 ? -1 : 0)
  return isLast ? [low] : [low | 0x80, ...signed(rest)]
}

const simd = (opcode: number): number[] => [0xfd, ...unsigned(opcode)]
/** Of an access to memory: its alignment, as the exponent of a power of two. */
const word = 2

/**
 * Instructions by what they give, with their opcodes.
 *
 * source: WebAssembly core specification 2.0, chapter 5.4; 3.0 for `relaxed_madd`.
 */
export const instructions = {
  i32: {
    'i32.eqz': [0x45],
    'i32.eq': [0x46],
    'i32.ne': [0x47],
    'i32.lt_s': [0x48],
    'i32.lt_u': [0x49],
    'i32.gt_s': [0x4a],
    'i32.gt_u': [0x4b],
    'i32.le_s': [0x4c],
    'i32.le_u': [0x4d],
    'i32.ge_s': [0x4e],
    'i32.ge_u': [0x4f],
    'f32.eq': [0x5b],
    'f32.ne': [0x5c],
    'f32.lt': [0x5d],
    'f32.gt': [0x5e],
    'f32.le': [0x5f],
    'f32.ge': [0x60],
    'i32.add': [0x6a],
    'i32.sub': [0x6b],
    'i32.mul': [0x6c],
    'i32.div_s': [0x6d],
    'i32.div_u': [0x6e],
    'i32.rem_s': [0x6f],
    'i32.rem_u': [0x70],
    'i32.and': [0x71],
    'i32.or': [0x72],
    'i32.xor': [0x73],
    'i32.shl': [0x74],
    'i32.shr_s': [0x75],
    'i32.shr_u': [0x76],
    'i32.reinterpret_f32': [0xbc],
    'i32.trunc_sat_f32_s': [0xfc, 0x00],
    'i32.trunc_sat_f32_u': [0xfc, 0x01],
    'v128.any_true': simd(0x53),
    'i32x4.all_true': simd(0xa3),
  },
  f32: {
    'f32.abs': [0x8b],
    'f32.neg': [0x8c],
    'f32.ceil': [0x8d],
    'f32.floor': [0x8e],
    'f32.trunc': [0x8f],
    'f32.nearest': [0x90],
    'f32.sqrt': [0x91],
    'f32.add': [0x92],
    'f32.sub': [0x93],
    'f32.mul': [0x94],
    'f32.div': [0x95],
    'f32.min': [0x96],
    'f32.max': [0x97],
    'f32.convert_i32_s': [0xb2],
    'f32.convert_i32_u': [0xb3],
    'f32.demote_f64': [0xb6],
    'f32.reinterpret_i32': [0xbe],
  },
  i64: {
    'i64.sub': [0x7d],
    'i64.shl': [0x86],
    'i64.shr_s': [0x87],
    'i64.extend_i32_s': [0xac],
    'i64.reinterpret_f64': [0xbd],
  },
  f64: {
    'f64.nearest': [0x9e],
    'f64.add': [0xa0],
    'f64.sub': [0xa1],
    'f64.mul': [0xa2],
    'f64.div': [0xa3],
    'f64.min': [0xa4],
    'f64.max': [0xa5],
    'f64.convert_i64_s': [0xb9],
    'f64.promote_f32': [0xbb],
    'f64.reinterpret_i64': [0xbf],
  },
  v128: {
    'v128.not': simd(0x4d),
    'v128.and': simd(0x4e),
    'v128.andnot': simd(0x4f),
    'v128.or': simd(0x50),
    'v128.xor': simd(0x51),
    'v128.bitselect': simd(0x52),
    'i32x4.splat': simd(0x11),
    'f32x4.splat': simd(0x13),
    'i32x4.eq': simd(0x37),
    'i32x4.ne': simd(0x38),
    'i32x4.lt_s': simd(0x39),
    'i32x4.lt_u': simd(0x3a),
    'i32x4.gt_s': simd(0x3b),
    'i32x4.gt_u': simd(0x3c),
    'i32x4.le_s': simd(0x3d),
    'i32x4.le_u': simd(0x3e),
    'i32x4.ge_s': simd(0x3f),
    'i32x4.ge_u': simd(0x40),
    'f32x4.eq': simd(0x41),
    'f32x4.ne': simd(0x42),
    'f32x4.lt': simd(0x43),
    'f32x4.gt': simd(0x44),
    'f32x4.le': simd(0x45),
    'f32x4.ge': simd(0x46),
    'f32x4.ceil': simd(0x67),
    'f32x4.floor': simd(0x68),
    'f32x4.trunc': simd(0x69),
    'f32x4.nearest': simd(0x6a),
    'i32x4.shl': simd(0xab),
    'i32x4.shr_s': simd(0xac),
    'i32x4.shr_u': simd(0xad),
    'i32x4.add': simd(0xae),
    'i32x4.sub': simd(0xb1),
    'i32x4.mul': simd(0xb5),
    'i32x4.min_s': simd(0xb6),
    'i32x4.min_u': simd(0xb7),
    'i32x4.max_s': simd(0xb8),
    'i32x4.max_u': simd(0xb9),
    'f32x4.abs': simd(0xe0),
    'f32x4.neg': simd(0xe1),
    'f32x4.sqrt': simd(0xe3),
    'f32x4.add': simd(0xe4),
    'f32x4.sub': simd(0xe5),
    'f32x4.mul': simd(0xe6),
    'f32x4.div': simd(0xe7),
    'f32x4.min': simd(0xe8),
    'f32x4.max': simd(0xe9),
    'f64x2.splat': simd(0x14),
    'f64x2.add': simd(0xf0),
    'f64x2.mul': simd(0xf2),
    'f32x4.relaxed_madd': simd(0x105),
    'i32x4.trunc_sat_f32x4_s': simd(0xf8),
    'i32x4.trunc_sat_f32x4_u': simd(0xf9),
    'f32x4.convert_i32x4_s': simd(0xfa),
    'f32x4.convert_i32x4_u': simd(0xfb),
    'i32x4.trunc_sat_f64x2_u_zero': simd(0xfd),
    'f64x2.convert_low_i32x4_u': simd(0xff),
  },
} as const

/** Loads by what they give; an address and `offset` bytes. */
export const loads = {
  i32: { 'i32.load': [0x28, word] },
  f32: { 'f32.load': [0x2a, word] },
  v128: {
    'v128.load': [...simd(0x00), 0],
    'v128.load32_splat': [...simd(0x09), word],
  },
} as const

export const stores = {
  i32: [0x36, word],
  f32: [0x38, word],
  v128: [...simd(0x0b), 0],
} as const

/** With a number of a lane behind them. */
export const lanes = {
  extract: { i32: simd(0x1b), f32: simd(0x1f) },
  replace: { i32: simd(0x1c), f32: simd(0x20) },
  /** An address, a vector. */
  load: [...simd(0x56), word],
  store: [...simd(0x5a), word],
} as const

export const valueTypes = { i32: 0x7f, i64: 0x7e, f32: 0x7d, f64: 0x7c, v128: 0x7b } as const

export const control = {
  localGet: 0x20,
  localSet: 0x21,
  localTee: 0x22,
  drop: 0x1a,
  select: [0x1b],
  i32Const: [0x41],
  f32Const: [0x43],
  f64Const: [0x44],
  i64Const: [0x42],
  v128Const: simd(0x0c),
  shuffle: simd(0x0d),
  memoryFill: [0xfc, 0x0b, 0],
  block: [0x02, 0x40],
  loop: [0x03, 0x40],
  if: [0x04, 0x40],
  else: 0x05,
  br: 0x0c,
  brIf: 0x0d,
  end: 0x0b,
} as const

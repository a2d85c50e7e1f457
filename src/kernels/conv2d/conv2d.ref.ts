import type { ConvSizes } from './geometry.ts'

/** Calls `visit` with the flat indices of every product of a convolution: into x, w and y. */
function eachTerm(sizes: ConvSizes, visit: (x: number, w: number, y: number) => void): void {
  const { N, C, H, W, O, KH, KW, OH, OW, SH, SW, PH, PW, DH, DW, CG, OG } = sizes
  for (let n = 0; n < N; n++)
    for (let o = 0; o < O; o++)
      for (let oy = 0; oy < OH; oy++)
        for (let ox = 0; ox < OW; ox++)
          for (let c = 0; c < CG; c++)
            for (let ky = 0; ky < KH; ky++)
              for (let kx = 0; kx < KW; kx++) {
                const iy = oy * SH + ky * DH - PH
                const ix = ox * SW + kx * DW - PW
                if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue
                visit(
                  ((n * C + Math.floor(o / OG) * CG + c) * H + iy) * W + ix,
                  ((o * CG + c) * KH + ky) * KW + kx,
                  ((n * O + o) * OH + oy) * OW + ox,
                )
              }
}

type Numbers = ArrayLike<number>

/** y, without epilogue. */
export function conv2dReference(x: Numbers, w: Numbers, sizes: ConvSizes): Float64Array {
  const y = new Float64Array(sizes.N * sizes.O * sizes.OH * sizes.OW)
  eachTerm(sizes, (ix, iw, iy) => {
    y[iy] += x[ix] * w[iw]
  })
  return y
}

/** dx, without epilogue. */
export function conv2dGradInputReference(dy: Numbers, w: Numbers, sizes: ConvSizes): Float64Array {
  const dx = new Float64Array(sizes.N * sizes.C * sizes.H * sizes.W)
  eachTerm(sizes, (ix, iw, iy) => {
    dx[ix] += dy[iy] * w[iw]
  })
  return dx
}

/** dw */
export function conv2dGradWeightReference(dy: Numbers, x: Numbers, sizes: ConvSizes): Float64Array {
  const dw = new Float64Array(sizes.O * sizes.CG * sizes.KH * sizes.KW)
  eachTerm(sizes, (ix, iw, iy) => {
    dw[iw] += dy[iy] * x[ix]
  })
  return dw
}

/** db: dy summed over all axes but the channels. */
export function rowSumsReference(dy: Numbers, { N, O, OH, OW }: ConvSizes): Float64Array {
  const db = new Float64Array(O)
  for (let i = 0; i < N * O * OH * OW; i++) db[Math.floor(i / (OH * OW)) % O] += dy[i]
  return db
}

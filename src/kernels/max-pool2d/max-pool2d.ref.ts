/** Sizes of one pooling: P planes; K kernel, S stride, P padding, D dilation by axis; E what a window spans, D (K - 1) + 1. */
export interface PoolSizes {
  readonly planes: number
  readonly H: number
  readonly W: number
  readonly OH: number
  readonly OW: number
  readonly KH: number
  readonly KW: number
  readonly SH: number
  readonly SW: number
  readonly PH: number
  readonly PW: number
  readonly DH: number
  readonly DW: number
  readonly EH: number
  readonly EW: number
}

type Numbers = ArrayLike<number>

/** y and the winner's flat index in its plane; ties to the first, NaN wins. */
export function maxPool2dReference(x: Numbers, sizes: PoolSizes): [Float64Array, Int32Array] {
  const { planes, H, W, OH, OW, SH, SW, PH, PW, DH, DW, EH, EW } = sizes
  const y = new Float64Array(planes * OH * OW)
  const index = new Int32Array(planes * OH * OW)
  for (let p = 0; p < planes; p++)
    for (let oy = 0; oy < OH; oy++)
      for (let ox = 0; ox < OW; ox++) {
        let winner = -1
        for (let iy = oy * SH - PH; iy < oy * SH - PH + EH; iy += DH)
          for (let ix = ox * SW - PW; ix < ox * SW - PW + EW; ix += DW) {
            if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue
            const value = x[p * H * W + iy * W + ix]
            const best = x[p * H * W + winner]
            if (winner < 0 || value > best || Number.isNaN(value)) winner = iy * W + ix
          }
        y[(p * OH + oy) * OW + ox] = x[p * H * W + winner]
        index[(p * OH + oy) * OW + ox] = winner
      }
  return [y, index]
}

/** dx: each pixel's windows that have it as their index. */
export function maxPool2dGradReference(
  dy: Numbers,
  index: Numbers,
  { planes, H, W, OH, OW, SH, SW, PH, PW, DH, DW, EH, EW }: PoolSizes,
): Float64Array {
  const dx = new Float64Array(planes * H * W)
  for (let p = 0; p < planes; p++)
    for (let oy = 0; oy < OH; oy++)
      for (let ox = 0; ox < OW; ox++) {
        const at = (p * OH + oy) * OW + ox
        const iy = Math.floor(index[at] / W)
        const ix = index[at] % W
        const ky = iy - (oy * SH - PH)
        const kx = ix - (ox * SW - PW)
        const isTap = ky >= 0 && ky < EH && kx >= 0 && kx < EW && ky % DH === 0 && kx % DW === 0
        if (isTap && iy < H) dx[p * H * W + index[at]] += dy[at]
      }
  return dx
}

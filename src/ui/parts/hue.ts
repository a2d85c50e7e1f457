/** How many colours theme/base.css has for one of several: `--hue-0` and so on (Okabe and Ito's, darkened or lightened for contrast). */
export const hueCount = 8

/** Variable of the theme that has the colour of one of several: a person, a rank of one tab, a run. */
export const hueName = (at: number): string => `--hue-${at % hueCount}`

/** A style with that colour as `--hue`. */
export const hueOf = (at: number) => ({ '--hue': `var(${hueName(at)})` })

import { render } from 'preact'
import 'uplot/dist/uPlot.min.css'
import '../../src/ui/theme/theme.css'
import '../../src/ui/theme/demo-page.css'
import '../../src/ui/theme/live.css'
import './strategies.css'
import { StrategiesPage } from './page.tsx'

render(<StrategiesPage />, document.getElementById('app')!)

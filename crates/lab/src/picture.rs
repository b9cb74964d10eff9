//! Curves as PNG pictures: rates over threads, on the axes of the papers' figures.
//!
//! They are drawn at twice the size and halved, so that lines are smooth. The same numbers give the same bytes.

use font8x8::legacy::BASIC_LEGACY;

/// Pixels of the picture.
const WIDTH: usize = 1040;
const HEIGHT: usize = 620;
/// The picture is drawn this many times as large.
const FINE: usize = 2;
/// Edges of the plot: left, top, right, bottom.
const FRAME: (i64, i64, i64, i64) = (90, 56, 800, 550);
/// Pixels of a character; titles are twice as large.
const CHARACTER: i64 = 8;

type Colour = [u8; 3];
const WHITE: Colour = [255, 255, 255];
const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [222, 222, 222];
/// Colours that everybody can distinguish (Okabe and Ito); the marks distinguish the curves in grey.
const COLOURS: [Colour; 9] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [120, 94, 240],
    [90, 90, 90],
    [0, 0, 0],
];

/// The texts and numbers of a plot.
pub struct Plot<'a> {
    /// The title above it.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub along: &'a str,
    /// Unit of the values.
    pub unit: &'a str,
    /// Values on the horizontal axis, at even steps.
    pub x: &'a [u32],
    /// Names and values of the curves, one value for each of `x`.
    pub curves: &'a [(&'a str, Vec<f64>)],
}

impl Plot<'_> {
    /// The bytes of a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, WIDTH as u32, HEIGHT as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
        writer.write_image_data(&self.draw().halved()).map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    fn draw(&self) -> Canvas {
        let mut canvas = Canvas::new();
        let (left, top, right, bottom) = FRAME;
        let highest = self.curves.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
        let step = round_step(highest);
        let steps = (highest / step).ceil().max(1.0) as i64;
        let y_of = |value: f64| bottom - (value / (step * steps as f64) * (bottom - top) as f64).round() as i64;
        let x_of = |column: usize| {
            let places = self.x.len().max(2) as i64 - 1;
            left + 20 + (right - left - 40) * column as i64 / places
        };
        canvas.text(left, 16, 2, self.title, BLACK);
        for number in 0..=steps {
            let value = step * number as f64;
            canvas.line((left, y_of(value)), (right, y_of(value)), 1, GREY);
            let label = format!("{value}");
            canvas.text(left - 8 - CHARACTER * label.len() as i64, y_of(value) - 4, 1, &label, BLACK);
        }
        canvas.text(left, top - 16, 1, self.unit, BLACK);
        for (column, x) in self.x.iter().enumerate() {
            let label = x.to_string();
            canvas.line((x_of(column), bottom), (x_of(column), bottom + 5), 1, BLACK);
            canvas.text(x_of(column) - CHARACTER * label.len() as i64 / 2, bottom + 12, 1, &label, BLACK);
        }
        let middle = (left + right - CHARACTER * self.along.len() as i64) / 2;
        canvas.text(middle, bottom + 34, 1, self.along, BLACK);
        canvas.line((left, top), (left, bottom), 1, BLACK);
        canvas.line((left, bottom), (right, bottom), 1, BLACK);
        for (number, (name, values)) in self.curves.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points: Vec<_> = values.iter().enumerate().map(|(i, value)| (x_of(i), y_of(*value))).collect();
            points.windows(2).for_each(|pair| canvas.line(pair[0], pair[1], 2, colour));
            points.iter().for_each(|point| canvas.mark(*point, number, colour));
            let at = top + 8 + 24 * number as i64;
            canvas.line((right + 16, at), (right + 40, at), 2, colour);
            canvas.mark((right + 28, at), number, colour);
            canvas.text(right + 50, at - 4, 1, name, BLACK);
        }
        canvas
    }
}

/// 1, 2 or 5 times a power of ten, so that five to ten steps reach `highest`.
fn round_step(highest: f64) -> f64 {
    let least = (highest / 8.0).max(1e-6);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|n| n * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// A picture at [`FINE`] times its size. Coordinates are those of the final picture.
struct Canvas {
    pixels: Vec<Colour>,
}

impl Canvas {
    fn new() -> Self {
        Self { pixels: vec![WHITE; WIDTH * FINE * HEIGHT * FINE] }
    }

    /// Sets a pixel of the enlarged picture; pixels outside of it are ignored.
    fn dot(&mut self, x: i64, y: i64, colour: Colour) {
        let (width, height) = ((WIDTH * FINE) as i64, (HEIGHT * FINE) as i64);
        if (0..width).contains(&x) && (0..height).contains(&y) {
            self.pixels[(y * width + x) as usize] = colour;
        }
    }

    fn line(&mut self, from: (i64, i64), to: (i64, i64), thickness: i64, colour: Colour) {
        let fine = FINE as i64;
        let (dx, dy) = ((to.0 - from.0) * fine, (to.1 - from.1) * fine);
        let steps = dx.abs().max(dy.abs()).max(1);
        for step in 0..=steps {
            let (x, y) = (from.0 * fine + dx * step / steps, from.1 * fine + dy * step / steps);
            for i in 0..thickness * fine {
                for j in 0..thickness * fine {
                    self.dot(x + i - thickness * fine / 2, y + j - thickness * fine / 2, colour);
                }
            }
        }
    }

    /// A disc, a square, a diamond or a cross, by `number`.
    fn mark(&mut self, at: (i64, i64), number: usize, colour: Colour) {
        let (fine, size) = (FINE as i64, 5 * FINE as i64);
        for i in -size..=size {
            for j in -size..=size {
                let inside = match number % 4 {
                    0 => i * i + j * j <= size * size,
                    1 => i.abs().max(j.abs()) <= size * 4 / 5,
                    2 => i.abs() + j.abs() <= size,
                    _ => (i.abs() - j.abs()).abs() <= fine,
                };
                if inside {
                    self.dot(at.0 * fine + i, at.1 * fine + j, colour);
                }
            }
        }
    }

    /// Draws ASCII text, `scale` times as large as the font. Other characters are left out.
    fn text(&mut self, x: i64, y: i64, scale: i64, text: &str, colour: Colour) {
        let size = scale * FINE as i64;
        for (place, byte) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii()) {
            let left = (x + place as i64 * CHARACTER * scale) * FINE as i64;
            for (row, bits) in (0..).zip(BASIC_LEGACY[usize::from(byte)]) {
                for column in (0..CHARACTER).filter(|column| bits >> column & 1 == 1) {
                    for i in 0..size {
                        for j in 0..size {
                            self.dot(left + column * size + i, y * FINE as i64 + row * size + j, colour);
                        }
                    }
                }
            }
        }
    }

    /// The final picture: each pixel is the mean of the enlarged ones.
    fn halved(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(WIDTH * HEIGHT * 3);
        for (y, x) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (y, x))) {
            for channel in 0..3 {
                let fine = (0..FINE).flat_map(|i| (0..FINE).map(move |j| (i, j)));
                let at = |(i, j)| (y * FINE + i) * WIDTH * FINE + x * FINE + j;
                let sum: usize = fine.map(|place| usize::from(self.pixels[at(place)][channel])).sum();
                bytes.push((sum / (FINE * FINE)) as u8);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(value: f64) -> Vec<u8> {
        let curves = [("one", vec![1.0, value]), ("two", vec![100.0, 50.0])];
        Plot { title: "t", along: "threads", unit: "MB/s", x: &[1, 2], curves: &curves }.png().expect("a picture")
    }

    #[test]
    fn equal_numbers_give_equal_bytes_of_a_png_file() {
        let bytes = plot(7.0);
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(bytes, plot(7.0));
        assert_ne!(bytes, plot(90.0));
    }

    #[test]
    fn steps_are_round_and_few() {
        for (highest, step) in [(5608.0, 1000.0), (100.0, 20.0), (0.9, 0.2), (8.0, 1.0)] {
            assert_eq!(round_step(highest), step, "{highest}");
        }
    }

    #[test]
    fn a_plot_of_zeros_is_drawn() {
        let curves = [("none", vec![0.0])];
        assert!(Plot { title: "t", along: "n", unit: "u", x: &[1], curves: &curves }.png().is_ok());
    }
}
